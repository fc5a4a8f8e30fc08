// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--listen`: what the scheduler or the agent counts, for Prometheus, and whether it is alive, for the service manager that restarts it.
//!
//! The threads that answer are clients of the control socket like `plimsoll status`: what decides limits runs in its own
//! thread, and a scrape reaches it as one request between two of its steps.
use crate::exit::Failure;
use crate::http::{serve, Answer, Asked};
use crate::openmetrics::{exposition, Format};
use plimsoll_agent::Containers;
use plimsoll_live::{ask, Error, Request};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(clap::Args)]
pub struct Listen {
    /// Serve /metrics (OpenMetrics), /healthz and /readyz over HTTP: a port of the loopback address, or ADDRESS:PORT
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Option<SocketAddr>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .parse()
        .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    port.ok().or_else(|| text.parse().ok()).ok_or_else(|| {
        "allowed: a port, 0..65535, or ADDRESS:PORT with a number for the address: 9469, 0.0.0.0:9469, [::1]:9469".into()
    })
}

impl Listen {
    /// Begins to answer. Nothing is ready before the control socket is there.
    pub fn start(&self) -> Result<(), Failure> {
        let Some(at) = self.listen else { return Ok(()) };
        let containers = Arc::new(Mutex::new(Containers::under(Path::new("/"))));
        let at = serve(at, move |asked| answer(asked, &containers))
            .map_err(|error| Failure::Machine(format!("--listen {at}: {error}")))?;
        crate::out::note(format_args!("plimsoll: metrics at http://{at}/metrics"));
        if !at.ip().is_loopback() {
            errln!("warning: --listen {at}: everybody who can reach it can read the names and the CPU use of all cgroups; there is no encryption and no password");
        }
        Ok(())
    }
}

fn answer(asked: &Asked<'_>, containers: &Mutex<Containers>) -> Answer {
    match asked.path {
        "/metrics" => match ask(&Request::Status { cgroup: None }) {
            Ok(Some(status)) => {
                let format = Format::asked_for(asked.accept);
                // Whatever a thread that panicked left there is a cache.
                let mut containers = containers.lock().unwrap_or_else(PoisonError::into_inner);
                Answer {
                    status: "200 OK",
                    content_type: format.content_type(),
                    text: exposition(&status, &mut containers, format),
                }
            }
            Ok(None) => Answer::plain("503 Service Unavailable", "no status\n"),
            Err(error) => Answer::plain("503 Service Unavailable", format!("{error}\n")),
        },
        "/healthz" | "/readyz" => {
            // Of no cgroup, which is the cheapest answer.
            let nobody = Some("/proc".into());
            match ask(&Request::Status { cgroup: nobody }) {
                Ok(_) => Answer::plain("200 OK", "ok\n"),
                // A scheduler that has not opened its socket yet is alive, and is not to be killed for it.
                Err(Error::Absent(_)) if asked.path == "/healthz" => Answer::plain("200 OK", "starting\n"),
                Err(error) => Answer::plain("503 Service Unavailable", format!("{error}\n")),
            }
        }
        "/" => Answer::plain("200 OK", "plimsoll: /metrics /healthz /readyz\n"),
        _ => Answer::plain("404 Not Found", "not found; known: /metrics, /healthz, /readyz\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_the_loopback_address_and_nonsense_is_answered_with_what_is_allowed() {
        let shown = |text| address(text).map(|address| address.to_string());
        assert_eq!(shown("9469").as_deref(), Ok("127.0.0.1:9469"));
        assert_eq!(shown("0.0.0.0:80").as_deref(), Ok("0.0.0.0:80"));
        assert_eq!(shown("[::1]:9469").as_deref(), Ok("[::1]:9469"));
        for wrong in ["", "65536", "localhost", "localhost:1", "1.2.3.4", ":80"] {
            assert!(
                shown(wrong).is_err_and(|message| message.contains("9469")),
                "{wrong}"
            );
        }
    }
}
