// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machine-wide switches: a TOML file, checked as a whole before anything is loaded.
use crate::intf::Settings;
use crate::{Error, Result};
use plimsoll_policy_sys as pl;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// `plimsoll run --config FILE`. Every key has a default; unknown keys are errors.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Groups may use carried time.
    pub burst: bool,
    /// Run time that a CPU draws from a group's pool at a time.
    pub slice_us: u64,
    /// Idle CPUs take work from overloaded ones of their LLC.
    pub steal: bool,
    /// Largest number of NUMA nodes with which they do.
    pub steal_node_limit: u32,
    /// Least time between two publications of one queue's load; 0: no limit.
    pub load_publish_us: u64,
    /// How long a task runs before the next is considered.
    pub task_slice_us: u64,
    /// Window of headroom.
    pub headroom_window_us: u64,
    /// What the side may always use, per window.
    pub headroom_tolerance_us: u64,
    /// cgroups that can be represented.
    pub max_groups: u32,
}

/// Nanoseconds.
const US: u64 = 1_000;

impl Default for Config {
    fn default() -> Self {
        Self {
            burst: true,
            slice_us: pl::BW_SLICE_NS / US,
            steal: true,
            steal_node_limit: pl::STEAL_NODE_LIMIT,
            load_publish_us: pl::LOAD_PUBLISH_NS / US,
            task_slice_us: pl::FAIR_SLICE_NS / US,
            headroom_window_us: pl::HEADROOM_WINDOW_NS / US,
            headroom_tolerance_us: pl::HEADROOM_TOLERANCE_NS / US,
            max_groups: 16_384,
        }
    }
}

/// What a key may be.
#[derive(Debug, Clone, Copy)]
enum Allowed {
    Switch,
    Whole(u64, u64),
}

const KEYS: [(&str, Allowed); 9] = [
    ("burst", Allowed::Switch),
    ("slice_us", Allowed::Whole(1, 1_000_000)),
    ("steal", Allowed::Switch),
    ("steal_node_limit", Allowed::Whole(1, 1024)),
    ("load_publish_us", Allowed::Whole(0, 1_000_000)),
    ("task_slice_us", Allowed::Whole(100, 100_000)),
    ("headroom_window_us", Allowed::Whole(10_000, 1_000_000)),
    ("headroom_tolerance_us", Allowed::Whole(1, 1_000_000)),
    ("max_groups", Allowed::Whole(64, 65_536)),
];

/// Keys of earlier versions, and why there is nothing to set any more.
const GONE: [(&str, &str); 1] = [(
    "wakeup_granularity_us",
    "who goes before whom follows from what each is owed and asks for (task_slice_us bounds a turn); take it out",
)];

impl Allowed {
    fn holds(self, value: &toml::Value) -> bool {
        match (self, value) {
            (Allowed::Switch, toml::Value::Boolean(_)) => true,
            (Allowed::Whole(least, most), toml::Value::Integer(number)) => {
                u64::try_from(*number).is_ok_and(|number| (least..=most).contains(&number))
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Allowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Allowed::Switch => f.write_str("allowed are true and false"),
            Allowed::Whole(least, most) => write!(f, "allowed are whole numbers from {least} to {most}"),
        }
    }
}

impl Config {
    /// From the text of the file at `path`. Everything that is wrong is said at once, a line for each.
    pub fn read(path: &Path, text: &str) -> Result<Self> {
        Self::parse(text).map_err(|wrong| {
            let lines: Vec<String> = wrong
                .iter()
                .map(|(line, message)| format!("{}:{line}: {message}", path.display()))
                .collect();
            Error::Input(lines.join("\n"))
        })
    }

    /// An error is a line's number, from 1, and what is wrong there.
    fn parse(text: &str) -> std::result::Result<Self, Vec<(usize, String)>> {
        let line_at = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let syntax = |error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            vec![(line_at(at), format!("no valid TOML: {}", error.message()))]
        };
        let table: BTreeMap<toml::Spanned<String>, toml::Spanned<toml::Value>> =
            toml::from_str(text).map_err(syntax)?;
        let mut wrong = Vec::new();
        for (key, value) in &table {
            let (line, name) = (line_at(key.span().start), key.get_ref());
            if let Some((_, why)) = GONE.iter().find(|(gone, _)| gone == name) {
                wrong.push((line, format!("{name} is no longer a key: {why}")));
                continue;
            }
            let Some((_, allowed)) = KEYS.iter().find(|(known, _)| known == name) else {
                let known = KEYS.map(|(known, _)| known).join(", ");
                wrong.push((line, format!("unknown key \"{name}\"; known: {known}")));
                continue;
            };
            if !allowed.holds(value.get_ref()) {
                let given = &text[value.span()];
                wrong.push((line, format!("{name} = {given}: {allowed}")));
            }
        }
        if wrong.is_empty() {
            let config: Self = toml::from_str(text).map_err(syntax)?;
            let line_of = |name: &str| {
                let found = table.keys().find(|key| key.get_ref() == name);
                found.map_or(1, |key| line_at(key.span().start))
            };
            let (tolerance_us, window_us) = (config.headroom_tolerance_us, config.headroom_window_us);
            if tolerance_us > window_us {
                let message = format!(
                    "headroom_tolerance_us = {tolerance_us}: allowed are at most {window_us}, which is headroom_window_us"
                );
                wrong.push((line_of("headroom_tolerance_us"), message));
            }
            if wrong.is_empty() {
                return Ok(config);
            }
        }
        wrong.sort();
        Err(wrong)
    }

    /// As the BPF program takes it.
    pub(crate) fn settings(&self) -> Settings {
        let bandwidth = pl::BwConfig {
            slice_ns: self.slice_us * US,
            expire: 0,
            burst_off: u32::from(!self.burst),
            mainline: 0,
            reserved: 0,
        };
        Settings {
            config: pl::Config {
                bandwidth,
                // The side's budget comes in parts of a window: small slices, nothing carried over.
                side: pl::BwConfig {
                    slice_ns: pl::HEADROOM_SLICE_NS,
                    burst_off: 1,
                    ..bandwidth
                },
                load: pl::LoadConfig {
                    publish_ns: self.load_publish_us * US,
                },
                fair: pl::FairConfig {
                    slice_ns: self.task_slice_us * US,
                    ..Default::default()
                },
                refresh_ns: pl::REFRESH_NS,
            },
            steal: pl::StealConfig {
                enabled: self.steal.into(),
                node_limit: self.steal_node_limit,
                cost_ns: pl::STEAL_COST_NS,
            },
            headroom: pl::HeadroomConfig {
                window_ns: self.headroom_window_us * US,
                tolerance_ns: self.headroom_tolerance_us * US,
                steps: pl::HEADROOM_STEPS,
                reserved: 0,
            },
            min_run_ns: 50 * US,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_key_with_its_range() {
        let document = include_str!("../../../docs/src/reference/live.md");
        for (key, allowed) in KEYS {
            let range = match allowed {
                Allowed::Switch => "true, false".to_string(),
                Allowed::Whole(least, most) => format!("{least}..{most}"),
            };
            let row = format!("| `{key}` | {range} | ");
            assert!(document.contains(&row), "{row}");
        }
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(Config::parse(""), Ok(Config::default()));
    }

    fn wrong(text: &str) -> Vec<String> {
        let lines = Config::parse(text).unwrap_err().into_iter();
        lines
            .map(|(line, message)| format!("{line}: {message}"))
            .collect()
    }

    #[test]
    fn errors_name_line_key_value_and_range_all_at_once() {
        assert_eq!(
            wrong("steal = 1\nslice_us = 0\nmax_groups = \"many\"\nburst = true\nload_publish_us = -1\n"),
            [
                "1: steal = 1: allowed are true and false",
                "2: slice_us = 0: allowed are whole numbers from 1 to 1000000",
                "3: max_groups = \"many\": allowed are whole numbers from 64 to 65536",
                "5: load_publish_us = -1: allowed are whole numbers from 0 to 1000000",
            ]
        );
        let unknown = wrong("burst = true\nbrust = true\n");
        assert!(unknown[0].starts_with("2: unknown key \"brust\"; known: burst, slice_us, steal,"));
        assert!(wrong("burst = true\nsteal =\n")[0].starts_with("2: no valid TOML: "));
        assert!(wrong("\nburst = true\nburst = false\n")[0].starts_with("3: no valid TOML: "));
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        assert_eq!(
            wrong("headroom_window_us = 10000\nheadroom_tolerance_us = 20000\n"),
            ["2: headroom_tolerance_us = 20000: allowed are at most 10000, which is headroom_window_us"]
        );
        assert!(Config::parse("task_slice_us = 100\n").is_ok());
        assert!(wrong("wakeup_granularity_us = 4001\ntask_slice_us = 100\n")[0].starts_with("1: wakeup"));
    }

    #[test]
    fn every_key_has_a_range_and_its_default_lies_within() {
        for (key, allowed) in KEYS {
            let good = match allowed {
                Allowed::Switch => "false".to_string(),
                Allowed::Whole(_, most) => most.min(10_000).to_string(),
            };
            assert!(Config::parse(&format!("{key} = {good}\n")).is_ok(), "{key}");
        }
    }
}
