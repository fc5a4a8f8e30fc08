// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of gRPC without streams: HTTP/2 on a Unix socket, one connection for as many calls as are made together.
//!
//! | | bytes |
//! |---|---|
//! | message, in DATA | compressed u8 (0), length u32 big-endian, so many bytes of protobuf |
//! | status, in the last HEADERS | `grpc-status`: 0 is well; `grpc-message`: what is wrong |
//!
//! Source: grpc/grpc doc/PROTOCOL-HTTP2.md.
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request};
use plimsoll_protobuf::{damaged, Message};
use std::io::{Error, Result};
use std::path::Path;
use tokio::net::UnixStream;

const HEADER: usize = 5;
/// The kubelet's own limit to what a runtime answers.
const LONGEST_ANSWER: usize = 16 << 20;
/// What may be on its way: as much as answers have on most nodes, or each part of one would wait for a word of ours.
const ON_ITS_WAY: u32 = 1 << 20;
/// What a status may say of an error; as much as gRPC's own clients take.
const LONGEST_HEADERS: u32 = 16 << 10;

pub struct Connection(SendRequest<Bytes>);

impl Connection {
    pub async fn to(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).await?;
        let (requests, connection) = h2::client::Builder::new()
            .enable_push(false)
            .max_header_list_size(LONGEST_HEADERS)
            .initial_window_size(ON_ITS_WAY)
            .initial_connection_window_size(ON_ITS_WAY)
            .handshake(stream)
            .await
            .map_err(failed)?;
        // Each call says what fails on it; it ends with the last of its requests.
        tokio::spawn(async { drop(connection.await) });
        Ok(Self(requests))
    }

    /// Calls `method`, `/SERVICE/NAME`. Returns the answer's message.
    pub async fn call(&mut self, method: &str, asked: &Message) -> Result<Vec<u8>> {
        let mut requests = self.0.clone().ready().await.map_err(failed)?;
        // Over a Unix socket the host's name means nothing; this is what others say.
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://localhost{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(damaged)?;
        let (answer, mut sent) = requests.send_request(request, false).map_err(failed)?;
        let payload = asked.as_bytes();
        let mut message = vec![0];
        message.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        message.extend_from_slice(payload);
        sent.send_data(message.into(), true).map_err(failed)?;
        let (head, mut body) = answer.await.map_err(failed)?.into_parts();
        if head.status != 200 {
            return Err(damaged(format!("HTTP status {}", head.status)));
        }
        let mut read = Vec::new();
        while let Some(part) = body.data().await {
            let part = part.map_err(failed)?;
            body.flow_control().release_capacity(part.len()).map_err(failed)?;
            if read.len() + part.len() > HEADER + LONGEST_ANSWER {
                return Err(damaged(format!("an answer of more than {LONGEST_ANSWER} bytes")));
            }
            read.extend_from_slice(&part);
        }
        // An error without a message has its status in the first HEADERS.
        let last = body.trailers().await.map_err(failed)?;
        status(last.as_ref().unwrap_or(&head.headers))?;
        unwrapped(read)
    }
}

fn status(headers: &HeaderMap) -> Result<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match (text("grpc-status"), text("grpc-message")) {
        (Some("0"), _) => Ok(()),
        (Some(number), message) => {
            let message = message.unwrap_or("no word why");
            Err(Error::other(format!("gRPC status {number}: {message}")))
        }
        (None, _) => Err(damaged("an answer without gRPC's status")),
    }
}

/// The one message of an answer.
fn unwrapped(mut answer: Vec<u8>) -> Result<Vec<u8>> {
    let Some(&[compressed, a, b, c, d]) = answer.first_chunk::<HEADER>() else {
        return Err(damaged("an answer without a message"));
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let body = answer.len() - HEADER;
    if compressed != 0 || length != body {
        return Err(damaged(format!(
            "a message of {body} bytes that says it has {length}, compressed {compressed}"
        )));
    }
    answer.drain(..HEADER);
    Ok(answer)
}

fn failed(error: h2::Error) -> Error {
    Error::other(error)
}
