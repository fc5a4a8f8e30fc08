// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys that are given and have no effect, since another key turns off what they are about.
use crate::{Batch, ClientsDb, Schbench, Server, Workload};

/// A key without effect, and what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleKey {
    pub key: &'static str,
    /// The keys that would give it one.
    pub needs: &'static [&'static str],
    /// In words: "pieces of 2 or more".
    pub wanted: &'static str,
}

impl Workload {
    /// Those that are not at their default: a default says nothing and costs nothing.
    pub fn idle_keys(&self) -> Vec<IdleKey> {
        let given = match self {
            Workload::Schbench(one) if one.requests_per_s == 0 => schbench(one),
            Workload::Server(one) if one.pieces == 1 => server(one),
            Workload::Batch(one) if one.locked_us == 0.0 && !one.barrier => batch(one),
            Workload::ClientsDb(one) if one.storage_percent == 0.0 => clients_db(one),
            _ => Vec::new(),
        };
        given
            .into_iter()
            .filter(|(_, changed)| *changed)
            .map(|(key, _)| key)
            .collect()
    }
}

fn key(key: &'static str, needs: &'static [&'static str], wanted: &'static str) -> IdleKey {
    IdleKey { key, needs, wanted }
}

fn schbench(one: &Schbench) -> Vec<(IdleKey, bool)> {
    let default = Schbench::default();
    [
        ("batch", one.batch != default.batch),
        ("random_sleeps", one.random_sleeps),
        ("timer_slack_us", one.timer_slack_us != default.timer_slack_us),
        ("version", one.version != default.version),
    ]
    .map(|(name, changed)| (key(name, &["requests_per_s"], "requests_per_s above 0"), changed))
    .to_vec()
}

fn server(one: &Server) -> Vec<(IdleKey, bool)> {
    vec![(
        key("wait_us", &["pieces"], "pieces of 2 or more"),
        one.wait_us > 0.0,
    )]
}

fn batch(one: &Batch) -> Vec<(IdleKey, bool)> {
    let needs = key(
        "spin_us",
        &["locked_us", "barrier"],
        "locked_us above 0, or a barrier",
    );
    vec![(needs, one.spin_us > 0.0)]
}

fn clients_db(one: &ClientsDb) -> Vec<(IdleKey, bool)> {
    let changed = one.storage_us != ClientsDb::default().storage_us;
    vec![(
        key("storage_us", &["storage_percent"], "storage_percent above 0"),
        changed,
    )]
}
