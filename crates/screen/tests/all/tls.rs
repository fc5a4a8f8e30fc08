// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--ca`: which servers of TLS are trusted. Certificates are made here, the server is rustls'.
use plimsoll_screen::prometheus::{fetch, Access, FetchError, Server, Wanted};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// A certificate for this address: its own, or the CA's. With its key, and as PEM.
fn certificate(signed_by: Option<&Ca>, is_ca: IsCa) -> (CertificateDer<'static>, KeyPair, String) {
    let mut params = CertificateParams::new(["127.0.0.1".to_string()]).expect("an address");
    params.is_ca = is_ca;
    let key = KeyPair::generate().expect("a key");
    let made = match signed_by {
        Some(ca) => params.signed_by(&key, ca),
        None => params.self_signed(&key),
    };
    let made = made.expect("a certificate");
    (made.der().clone(), key, made.pem())
}

/// A Prometheus without a series, over TLS.
fn serve(certificate: CertificateDer<'static>, key: &KeyPair) -> String {
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the certificate fits its key");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).expect("a sound configuration");
            // A client that does not trust the certificate breaks off.
            let _ = answer(StreamOwned::new(connection, stream.expect("a connection")));
        }
    });
    url
}

fn answer(mut stream: StreamOwned<ServerConnection, TcpStream>) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    let data = match head.split(' ').nth(1).expect("a target") {
        target if target.contains("time%28%29") || target.contains("time()") => {
            r#"{"resultType":"scalar","result":[1700000000,"1700000000"]}"#
        }
        target if target.contains("/label/") => "[]",
        _ => r#"{"resultType":"vector","result":[]}"#,
    };
    let body = format!(r#"{{"status":"success","data":{data}}}"#);
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn asked(url: &str, ca_pem: String) -> Result<(), FetchError> {
    let server = Server::new(Access {
        ca_pem: Some(ca_pem.into_bytes()),
        retries: 0,
        timeout: Duration::from_secs(10),
        ..Access::new(url)
    })?;
    fetch(&server, &Wanted::new(3_600_000), &mut |_| ()).map(drop)
}

#[test]
fn a_server_is_trusted_by_the_ca_that_is_given_and_by_no_other() {
    let (ours, other) = (ca(), ca());
    let (certificate, key, _) = certificate(Some(&ours), IsCa::NoCa);
    let url = serve(certificate, &key);
    assert_eq!(asked(&url, ours.pem()), Ok(()));
    match asked(&url, other.pem()) {
        Err(FetchError::Given(text)) => {
            assert!(text.contains("certificate") && text.contains("allowed"), "{text}")
        }
        unexpected => panic!("{unexpected:?}"),
    }
}

#[test]
fn a_certificate_that_signed_itself_is_trusted_if_it_is_given() {
    let (certificate, key, pem) = certificate(None, IsCa::NoCa);
    let url = serve(certificate, &key);
    assert_eq!(asked(&url, pem), Ok(()));
}

#[test]
fn a_server_whose_own_certificate_is_a_ca_is_refused_with_what_to_do() {
    let (certificate, key, pem) = certificate(None, IsCa::Ca(BasicConstraints::Unconstrained));
    let url = serve(certificate, &key);
    match asked(&url, pem) {
        Err(FetchError::Given(text)) => assert!(text.contains("CA:FALSE"), "{text}"),
        unexpected => panic!("{unexpected:?}"),
    }
}
