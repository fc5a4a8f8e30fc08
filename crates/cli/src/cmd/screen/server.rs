// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll screen --prometheus`: flags of a server, and its progress on the standard error.
use crate::exit::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_screen::prometheus::{self, Access, FetchError, FirstLook, Server, Wanted};
use plimsoll_screen::{Collector, Options};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// Holds a bearer token where no file does.
const TOKEN: &str = "PLIMSOLL_PROMETHEUS_TOKEN";

#[derive(clap::Args)]
#[command(next_help_heading = "From a server")]
pub struct FromServer {
    /// Ask this server, with GET requests only: Prometheus, or VictoriaMetrics, Thanos and Mimir with the same API. The
    /// address before `/api/v1`
    #[arg(long, value_name = "URL", conflicts_with = "files")]
    prometheus: Option<String>,

    /// How much time before the end
    #[arg(long, default_value = "7d", value_name = "TIME", conflicts_with = "files", value_parser = length)]
    last: Duration,

    /// The end, as 2026-11-25T12:00:00Z; now, if not given
    #[arg(long, value_name = "TIME", conflicts_with = "files", value_parser = humantime::parse_rfc3339_weak)]
    until: Option<std::time::SystemTime>,

    /// Only this namespace; may be given several times
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    namespace: Vec<String>,

    /// More labels that every series has to have, as PromQL has them: 'cluster="a"'
    #[arg(long, value_name = "MATCHERS", conflicts_with = "files")]
    selector: Option<String>,

    /// A file with a bearer token; without it the environment's PLIMSOLL_PROMETHEUS_TOKEN
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    token_file: Option<PathBuf>,

    /// A file of certificates in PEM to trust beside the system's
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    ca: Option<PathBuf>,

    /// One more header, as 'X-Scope-OrgID: team'; may be given several times
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "files", value_parser = header)]
    header: Vec<(String, String)>,

    /// Ask for every sample of every container. Otherwise, where there are many, some are looked at first, evenly over the
    /// time, and every one only of those containers whose class these leave in doubt
    #[arg(long, conflicts_with = "files")]
    every_sample: bool,

    /// How long the server may take to begin an answer, and to end it
    #[arg(long, default_value = "60s", value_name = "TIME", conflicts_with = "files", value_parser = timeout)]
    timeout: Duration,
}

impl FromServer {
    pub fn asked(&self) -> bool {
        self.prometheus.is_some()
    }
}

fn within(text: &str, least: &str, most: &str) -> Result<Duration, String> {
    let bound = |text| humantime::parse_duration(text).expect("a constant");
    match humantime::parse_duration(text) {
        Ok(time) if (bound(least)..=bound(most)).contains(&time) => Ok(time),
        _ => Err(format!("allowed: {least} to {most}")),
    }
}

fn length(text: &str) -> Result<Duration, String> {
    within(text, "15m", "400d")
}

fn timeout(text: &str) -> Result<Duration, String> {
    within(text, "1s", "1h")
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("allowed: NAME: VALUE")?;
    Ok((name.trim().into(), value.trim().into()))
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Given(text) => Failure::Input(text),
            FetchError::Failed(text) => Failure::Machine(text),
        }
    }
}

/// Everything that the server has, or why it cannot be had.
pub fn fetch(args: &FromServer, options: &Options) -> Result<Collector, Failure> {
    let mut access = Access::new(args.prometheus.clone().expect("asked for"));
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| Failure::file("read it", path, &error));
    access.token = match &args.token_file {
        Some(path) => Some(String::from_utf8_lossy(&read(path)?).trim().to_string()),
        None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
    };
    access.ca_pem = args.ca.as_ref().map(read).transpose()?;
    access.headers = args.header.clone();
    access.timeout = args.timeout;
    let server = Server::new(access)?;
    let mut wanted = Wanted::new(args.last.as_millis() as i64);
    wanted.end_ms = args.until.map(|time| {
        time.duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_millis() as i64)
    });
    wanted.first_look = (!args.every_sample).then(|| FirstLook::new(*options));
    wanted.namespaces = args.namespace.clone();
    wanted.selector = args.selector.clone().unwrap_or_default();
    // Hidden by indicatif itself where standard error is not a terminal.
    let bar = ProgressBar::new(1000).with_style(
        ProgressStyle::with_template("{bar:30} {percent}% {msg}, {eta} left").expect("a constant"),
    );
    let found = prometheus::fetch(&server, &wanted, &mut |progress| {
        bar.set_position((progress.share * 1e3) as u64);
        bar.set_message(format!(
            "{} containers, {:.1} million samples",
            progress.containers,
            progress.samples as f64 / 1e6
        ));
    });
    bar.finish_and_clear();
    Ok(found?)
}
