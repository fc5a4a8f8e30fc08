// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a runtime and its NRI plugin say to each other, as bytes: ttrpc messages in the frames of a multiplexer, on one Unix
//! socket. Both sides are client and server at once, each on a connection of its own in there.
//!
//! | | bytes, numbers are big-endian |
//! |---|---|
//! | frame | connection u32, length u32, so many bytes of that connection |
//! | ttrpc message | length u32, stream u32, type u8 (1 request, 2 response), flags u8, so many bytes of protobuf |
//!
//! Source: containerd/nri pkg/net/multiplex, containerd/ttrpc PROTOCOL.md. The crate ttrpc accepts connections of a socket of its
//! own, needs protoc's output and a thread for each call; this needs one request of ours, and answers in turn.
use plimsoll_protobuf::{damaged, fields, number, text, Message};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The runtime asks the plugin there.
pub const PLUGIN: u32 = 1;
/// The plugin asks the runtime there.
pub const RUNTIME: u32 = 2;

/// ttrpc's own limit. A longer message is refused.
const LONGEST_MESSAGE: usize = 4 << 20;
const FRAME_HEADER: usize = 8;
const MESSAGE_HEADER: usize = 10;
/// The runtime's reader takes a frame whole, into a buffer of this size.
const LONGEST_FRAME: usize = 4096;
/// The runtime gives a plugin 2 s for an answer; one that does not read for this long is lost.
const PATIENCE: Duration = Duration::from_secs(1);

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
/// The sender has no more for this stream.
const CLOSED: u8 = 1;

/// A connection with a runtime.
pub struct Wire {
    stream: UnixStream,
    read: Vec<u8>,
    /// Bytes of the connections PLUGIN and RUNTIME that are not yet a whole message.
    part: [Vec<u8>; 2],
    asked: VecDeque<Asked>,
    next_stream: u32,
}

/// What the other side asks for, or answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    Request {
        connection: u32,
        stream: u32,
        service: String,
        method: String,
        payload: Vec<u8>,
    },
    Response {
        stream: u32,
        /// What the other side has against it; empty: nothing.
        error: String,
    },
}

impl Wire {
    pub fn connect(socket: &Path) -> io::Result<Self> {
        Self::of(UnixStream::connect(socket)?)
    }

    pub fn of(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            read: Vec::new(),
            part: [Vec::new(), Vec::new()],
            asked: VecDeque::new(),
            next_stream: 1,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Reads once what has come, or waits for it.
    pub fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 1 << 16];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => self.read.extend_from_slice(&bytes[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        self.split()
    }

    /// Of a runtime that said these bytes: what it asks for.
    pub fn split_of(bytes: &[u8]) -> io::Result<impl Iterator<Item = Asked>> {
        let mut wire = Self::of(UnixStream::pair()?.0)?;
        wire.read.extend_from_slice(bytes);
        wire.split()?;
        Ok(wire.asked.into_iter())
    }

    /// Frames into messages, as far as they are whole.
    fn split(&mut self) -> io::Result<()> {
        let mut at = 0;
        while let Some(header) = self.read.get(at..at + FRAME_HEADER) {
            let (connection, length) = (word(header, 0), word(header, 4) as usize);
            if length > LONGEST_MESSAGE + MESSAGE_HEADER {
                return Err(damaged(format!("a frame of {length} bytes")));
            }
            let Some(frame) = self.read.get(at + FRAME_HEADER..at + FRAME_HEADER + length) else {
                break;
            };
            // Frames of others are not for this version.
            if let PLUGIN | RUNTIME = connection {
                self.part[connection as usize - 1].extend_from_slice(frame);
            }
            at += FRAME_HEADER + length;
        }
        self.read.drain(..at);
        self.take(PLUGIN)?;
        self.take(RUNTIME)
    }

    /// The next message that is whole, in the order in which they came.
    pub fn next(&mut self) -> Option<Asked> {
        self.asked.pop_front()
    }

    fn take(&mut self, connection: u32) -> io::Result<()> {
        let part = &mut self.part[connection as usize - 1];
        let mut at = 0;
        while let Some(header) = part.get(at..at + MESSAGE_HEADER) {
            let (length, stream, kind) = (word(header, 0) as usize, word(header, 4), header[8]);
            if length > LONGEST_MESSAGE {
                return Err(damaged(format!("a message of {length} bytes")));
            }
            let Some(body) = part.get(at + MESSAGE_HEADER..at + MESSAGE_HEADER + length) else {
                break;
            };
            match kind {
                REQUEST => self.asked.push_back(request(connection, stream, body)?),
                RESPONSE => self.asked.push_back(response(stream, body)?),
                _ => {} // of a stream, which NRI has none of
            }
            at += MESSAGE_HEADER + length;
        }
        part.drain(..at);
        Ok(())
    }

    /// Asks for `method`. Returns the stream that the answer will have.
    pub fn ask(
        &mut self,
        connection: u32,
        service: &str,
        method: &str,
        payload: &Message,
    ) -> io::Result<u32> {
        let stream = self.next_stream;
        // The caller's streams have odd numbers.
        self.next_stream += 2;
        let mut message = Message::default();
        message.text(1, service).text(2, method).message(3, payload);
        self.send(connection, stream, REQUEST, CLOSED, &message)?;
        Ok(stream)
    }

    pub fn answer(&mut self, connection: u32, stream: u32, payload: &Message) -> io::Result<()> {
        let mut message = Message::default();
        message.message(2, payload);
        self.send(connection, stream, RESPONSE, 0, &message)
    }

    /// That this method is not known, by gRPC's number for it.
    pub fn decline(&mut self, connection: u32, stream: u32, method: &str) -> io::Result<()> {
        const UNIMPLEMENTED: u64 = 12;
        let mut status = Message::default();
        status.number(1, UNIMPLEMENTED).text(2, method);
        let mut message = Message::default();
        message.message(1, &status);
        self.send(connection, stream, RESPONSE, 0, &message)
    }

    fn send(
        &mut self,
        connection: u32,
        stream: u32,
        kind: u8,
        flags: u8,
        message: &Message,
    ) -> io::Result<()> {
        let body = message.as_bytes();
        let mut whole = Vec::with_capacity(MESSAGE_HEADER + body.len());
        whole.extend_from_slice(&(body.len() as u32).to_be_bytes());
        whole.extend_from_slice(&stream.to_be_bytes());
        whole.extend_from_slice(&[kind, flags]);
        whole.extend_from_slice(body);
        let mut bytes = Vec::with_capacity(whole.len() + FRAME_HEADER);
        for frame in whole.chunks(LONGEST_FRAME) {
            bytes.extend_from_slice(&connection.to_be_bytes());
            bytes.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            bytes.extend_from_slice(frame);
        }
        self.stream.write_all(&bytes)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn request(connection: u32, stream: u32, body: &[u8]) -> io::Result<Asked> {
    let (mut service, mut method, mut payload) = (String::new(), String::new(), Vec::new());
    for field in fields(body) {
        match field? {
            (1, value) => service = text(value)?,
            (2, value) => method = text(value)?,
            (3, value) => payload = value.bytes()?.to_vec(),
            _ => {}
        }
    }
    Ok(Asked::Request {
        connection,
        stream,
        service,
        method,
        payload,
    })
}

fn response(stream: u32, body: &[u8]) -> io::Result<Asked> {
    let mut error = String::new();
    for field in fields(body) {
        let (1, status) = field? else { continue };
        let mut code = 0;
        for field in fields(status.bytes()?) {
            match field? {
                (1, value) => code = number(value)?,
                (2, value) => error = text(value)?,
                _ => {}
            }
        }
        if code != 0 && error.is_empty() {
            error = format!("error {code}");
        }
    }
    Ok(Asked::Response { stream, error })
}
