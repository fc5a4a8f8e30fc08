// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One GET: time-outs, attempts again, and what went wrong in words.
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

/// How a server is reached.
#[derive(Clone)]
pub struct Access {
    /// Where the API is, without `/api/v1`.
    pub url: String,
    /// A bearer token.
    pub token: Option<String>,
    /// More headers, as name and value.
    pub headers: Vec<(String, String)>,
    /// Certificates in PEM that are trusted beside the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// For the beginning of an answer, and for the rest of it.
    pub timeout: Duration,
    /// Attempts after the first one.
    pub retries: u32,
    /// Before the second attempt; twice as long before each further one.
    pub wait: Duration,
}

impl Access {
    pub fn new(url: impl Into<String>) -> Self {
        Access {
            url: url.into(),
            token: None,
            headers: Vec::new(),
            ca_pem: None,
            timeout: Duration::from_secs(60),
            retries: 3,
            wait: Duration::from_millis(500),
        }
    }
}

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FetchError {
    /// What was given is wrong: the address, a header, a token that is refused.
    #[error("{0}")]
    Given(String),
    /// The server cannot be reached, or does not answer as it should.
    #[error("{0}")]
    Failed(String),
}

/// Why one request failed.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub text: String,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It may be otherwise the next time.
    Again,
    /// Too much was asked for at once: too many samples, or it took too long.
    TooMuch,
    /// The server does not know this request.
    Unknown,
    /// Asking again gives the same answer: the request has to change.
    Given,
}

impl From<Problem> for FetchError {
    fn from(problem: Problem) -> Self {
        match problem.kind {
            Kind::Given | Kind::Unknown => FetchError::Given(problem.text),
            Kind::Again | Kind::TooMuch => FetchError::Failed(problem.text),
        }
    }
}

/// Of an answer that is read. What is asked for is some 60 MB; a server that sends more without an end is not followed.
const ANSWER_MOST: u64 = 512 << 20;

pub struct Server {
    agent: ureq::Agent,
    access: Access,
    base: String,
}

impl Server {
    pub fn new(access: Access) -> Result<Self, FetchError> {
        let given = |text: String| Err(FetchError::Given(text));
        let base = access.url.trim_end_matches('/').to_string();
        let shown = without_password(&base);
        let host = base.strip_prefix("http://").or(base.strip_prefix("https://"));
        if host.is_none_or(|host| host.is_empty() || host.starts_with('/')) || base.contains(['?', '#', ' '])
        {
            return given(format!(
                "{shown}: allowed: the address of a server, as http://HOST:PORT or https://HOST/PATH"
            ));
        }
        for (name, value) in &access.headers {
            let sound = !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
            if !sound || value.bytes().any(|b| !(b' '..=b'~').contains(&b)) {
                return given(format!("header {name}: allowed: NAME: VALUE in ASCII"));
            }
        }
        if access
            .token
            .as_deref()
            .is_some_and(|token| token.bytes().any(|b| !b.is_ascii_graphic()))
        {
            return given("the token: allowed: one line of ASCII without spaces".into());
        }
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(access.timeout.min(Duration::from_secs(10))))
            .timeout_recv_response(Some(access.timeout))
            .timeout_recv_body(Some(access.timeout));
        if base.starts_with("https://") {
            config = config.tls_config(
                TlsConfig::builder()
                    .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
                    .root_certs(RootCerts::Specific(Arc::new(roots(access.ca_pem.as_deref())?)))
                    .build(),
            );
        }
        Ok(Server {
            agent: config.build().into(),
            access,
            base,
        })
    }

    /// As messages name it.
    pub fn name(&self) -> String {
        without_password(&self.base)
    }

    /// Asks until an answer is whole and sound, or the attempts are used up. `read` says what is wrong with an answer.
    pub(super) fn get<T>(
        &self,
        path: &str,
        parameters: &[(&str, String)],
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, Problem> {
        let mut wait = self.access.wait;
        let mut attempt = 0;
        loop {
            let result = self.once(path, parameters).and_then(|bytes| {
                read(&bytes).map_err(|text| match bytes.trim_ascii_start().starts_with(b"<") {
                    true => Problem {
                        text: "answers with a page, not with the API of Prometheus".into(),
                        kind: Kind::Given,
                    },
                    false => Problem {
                        text,
                        kind: Kind::Again,
                    },
                })
            });
            match result {
                Err(problem) if problem.kind == Kind::Again && attempt < self.access.retries => {
                    attempt += 1;
                    std::thread::sleep(wait);
                    wait *= 2;
                }
                Err(problem) => {
                    let tries = match attempt {
                        0 => String::new(),
                        n => format!(" ({} attempts)", n + 1),
                    };
                    return Err(Problem {
                        text: format!("{}{path}: {}{tries}", self.name(), problem.text),
                        ..problem
                    });
                }
                ok => return ok,
            }
        }
    }

    fn once(&self, path: &str, parameters: &[(&str, String)]) -> Result<Vec<u8>, Problem> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        for (name, value) in parameters {
            request = request.query(name, value);
        }
        if let Some(token) = &self.access.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &self.access.headers {
            request = request.header(name, value);
        }
        let mut response = request.call().map_err(problem)?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(ANSWER_MOST).read_to_vec();
        if (200..300).contains(&status) {
            return body.map_err(problem);
        }
        let said = said(&body.unwrap_or_default());
        let allowed = |what: &str| format!("status {status}{said}; allowed: {what}");
        Err(match status {
            300..=399 => Problem {
                text: allowed("the address that it leads to"),
                kind: Kind::Given,
            },
            401 | 403 | 407 => Problem {
                text: allowed("a token or header that the server knows"),
                kind: Kind::Given,
            },
            // Prometheus: 422 too many samples, 503 timed out. Gateways: 504; 413 and 414 the request or answer is too long.
            408 | 413 | 414 | 422 | 504 => Problem {
                text: format!("status {status}{said}"),
                kind: Kind::TooMuch,
            },
            503 if said.contains("timed out") => Problem {
                text: format!("status {status}{said}"),
                kind: Kind::TooMuch,
            },
            429 | 500.. => Problem {
                text: format!("status {status}{said}"),
                kind: Kind::Again,
            },
            _ => Problem {
                text: allowed("a server with the API of Prometheus"),
                kind: Kind::Unknown,
            },
        })
    }
}

/// What the body of a failure says, as far as it is worth reading.
fn said(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Error {
        error: String,
    }
    let text = match serde_json::from_slice::<Error>(body) {
        Ok(json) => json.error,
        Err(_) => String::from_utf8_lossy(body)
            .lines()
            .next()
            .unwrap_or("")
            .trim()
            .to_string(),
    };
    // A page says it in too many words.
    match text.is_empty() || text.starts_with('<') {
        true => String::new(),
        false => format!(
            ": {}",
            text.chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect::<String>()
        ),
    }
}

fn problem(error: ureq::Error) -> Problem {
    use ureq::Error;
    let (text, kind) = match &error {
        Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            ("no connection in time".into(), Kind::Again)
        }
        Error::Timeout(_) => ("no answer in time".into(), Kind::TooMuch),
        Error::BodyExceedsLimit(_) => ("the answer has no end".into(), Kind::TooMuch),
        Error::HostNotFound => ("no host of this name".into(), Kind::Given),
        Error::BadUri(_) | Error::Http(_) => (error.to_string(), Kind::Given),
        Error::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            ("the answer is cut off".into(), Kind::Again)
        }
        Error::Rustls(_) | Error::Tls(_) | Error::Pem(_) => (no_tls(&error), Kind::Given),
        // What fails in the handshake comes so: the same would come again.
        Error::Io(io) if io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
            (no_tls(io), Kind::Given)
        }
        Error::Io(io) => (io.to_string(), Kind::Again),
        _ => (error.to_string(), Kind::Again),
    };
    Problem { text, kind }
}

fn no_tls(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    // Other programs take it; rustls' verifier does not, and to go without it is to trust any server that answers.
    if text.contains("CaUsedAsEndEntity") {
        return format!(
            "{text}: the server's own certificate is that of a CA; allowed: one with CA:FALSE, signed by itself or by the CA given"
        );
    }
    format!("{error}; allowed: a server of TLS whose certificate the system or the given file trusts")
}

/// The system's certificates, and those given.
fn roots(pem: Option<&[u8]>) -> Result<Vec<Certificate<'static>>, FetchError> {
    let system = rustls_native_certs::load_native_certs().certs;
    let mut all: Vec<_> = system
        .iter()
        .map(|der| Certificate::from_der(der).to_owned())
        .collect();
    if let Some(pem) = pem {
        let before = all.len();
        for item in ureq::tls::parse_pem(pem) {
            match item {
                Ok(PemItem::Certificate(certificate)) => all.push(certificate),
                Ok(_) => {}
                Err(error) => return Err(FetchError::Given(format!("the CA file: {error}; allowed: PEM"))),
            }
        }
        if all.len() == before {
            return Err(FetchError::Given(
                "the CA file: no certificate in it; allowed: certificates in PEM".into(),
            ));
        }
    }
    match all.is_empty() {
        true => Err(FetchError::Given(
            "this system trusts no certificate; allowed: a file of those to trust".into(),
        )),
        false => Ok(all),
    }
}

/// Addresses may carry a name and a password, which no message shows.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_string();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_string(),
    }
}
