// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Just enough of an HTTP server for a process that holds the machine's CPU limits. The request is parsed by httparse; what
//! is here bounds it: a few threads, one request for each connection, and a time and a size after which it is dropped.
//! The number of threads is fixed: clients cannot make the process run out of them.
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A slow client keeps one of them busy for `PATIENCE` at most.
const THREADS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
const LINGER: Duration = Duration::from_secs(1);
const HEADERS_MAX: usize = 64;
const BYTES_MAX: usize = 8192;

pub struct Answer {
    /// With its reason: `200 OK`.
    pub status: &'static str,
    pub content_type: &'static str,
    pub text: String,
}

impl Answer {
    pub fn plain(status: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            text: text.into(),
        }
    }
}

/// What a GET asks for.
pub struct Asked<'a> {
    pub path: &'a str,
    pub accept: &'a str,
}

/// Answers in threads of its own until the process ends. Returns the address, with the port that 0 became.
pub fn serve<F>(at: SocketAddr, answer: F) -> io::Result<SocketAddr>
where
    F: Fn(&Asked<'_>) -> Answer + Clone + Send + 'static,
{
    let listener = TcpListener::bind(at)?;
    let address = listener.local_addr()?;
    for _ in 0..THREADS {
        let (listener, answer) = (listener.try_clone()?, answer.clone());
        std::thread::Builder::new()
            .name("listen".into())
            .spawn(move || loop {
                match listener.accept() {
                    Ok((stream, _)) => drop(converse(stream, &answer)),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // No descriptor is free, say: not at once again.
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            })?;
    }
    Ok(address)
}

fn converse(stream: TcpStream, answer: &impl Fn(&Asked<'_>) -> Answer) -> io::Result<()> {
    let mut stream = Bounded {
        stream,
        until: Instant::now() + PATIENCE,
    };
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    let (answer, has_body) = loop {
        let read = stream.read(&mut part)?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&part[..read]);
        if let Some(answer) = understood(&bytes, answer) {
            break answer;
        }
        if bytes.len() > BYTES_MAX {
            break (Answer::plain("431 Request Header Fields Too Large", ""), true);
        }
    };
    let Answer {
        status,
        content_type,
        text,
    } = answer;
    // Time to make the answer is not the client's.
    stream.until = Instant::now() + PATIENCE;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    if has_body {
        stream.write_all(text.as_bytes())?;
    }
    // What the client still sends would turn the end into a reset, which takes the answer with it.
    stream.stream.shutdown(Shutdown::Write)?;
    stream.until = Instant::now() + LINGER;
    while stream.read(&mut part)? > 0 {}
    Ok(())
}

/// The answer, and whether its text is sent. `None`: there is more of the request to come.
fn understood(bytes: &[u8], answer: &impl Fn(&Asked<'_>) -> Answer) -> Option<(Answer, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(error) => return Some((Answer::plain("400 Bad Request", format!("{error}\n")), true)),
    }
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    if method != "GET" && method != "HEAD" {
        return Some((
            Answer::plain("405 Method Not Allowed", "allowed: GET, HEAD\n"),
            true,
        ));
    }
    let accept = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("accept"));
    let asked = Asked {
        path: target.split('?').next().unwrap_or(""),
        accept: accept.map_or("", |header| std::str::from_utf8(header.value).unwrap_or("")),
    };
    Some((answer(&asked), method == "GET"))
}

/// A connection that ends at a time, however slowly the other side reads or writes.
struct Bounded {
    stream: TcpStream,
    until: Instant,
}

impl Bounded {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(Some(left)),
        }
    }
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Bounded {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(to: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn requests_are_answered_whatever_else_is_connected_and_says_nothing() {
        let answer = |asked: &Asked<'_>| Answer::plain("200 OK", format!("{} {}", asked.path, asked.accept));
        let at = serve("127.0.0.1:0".parse().unwrap(), answer).unwrap();
        let silent: Vec<TcpStream> = (1..THREADS).map(|_| TcpStream::connect(at).unwrap()).collect();
        let got = said(
            at,
            "GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nACCEPT: text/plain\r\n\r\n",
        );
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
        assert!(
            got.ends_with("\r\nContent-Length: 19\r\nConnection: close\r\n\r\n/metrics text/plain"),
            "{got}"
        );
        let head = said(at, "HEAD / HTTP/1.0\r\n\r\n");
        assert!(
            head.ends_with("Content-Length: 2\r\nConnection: close\r\n\r\n"),
            "{head}"
        );
        for (request, status) in [
            ("POST / HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
            (
                &format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(2 * BYTES_MAX)),
                "431",
            ),
        ] {
            let got = said(at, request);
            assert!(
                got.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:.20}: {got}"
            );
        }
        drop(silent);
    }
}
