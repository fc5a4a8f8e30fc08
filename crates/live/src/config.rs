//! Machine-wide switches: a TOML file, checked as a whole before anything is loaded.
use crate::intf::Settings;
use crate::{Error, Result};
use plimsoll_policy_sys as pl;
use serde::Deserialize;
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
    /// A woken task preempts when it is at least this far ahead.
    pub wakeup_granularity_us: u64,
    /// Window of headroom.
    pub headroom_window_us: u64,
    /// What the side may always use, per window.
    pub headroom_tolerance_us: u64,
    /// cgroups that can be represented.
    pub max_groups: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            burst: true,
            slice_us: 5_000,
            steal: true,
            steal_node_limit: 2,
            load_publish_us: 1_000,
            task_slice_us: 3_000,
            wakeup_granularity_us: 1_000,
            headroom_window_us: 100_000,
            headroom_tolerance_us: 1_000,
            max_groups: 16_384,
        }
    }
}

impl Config {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Input(format!("{}: cannot read it: {error}", path.display())))?;
        Self::parse(&text).map_err(|message| Error::Input(format!("{}:{message}", path.display())))
    }

    /// An error begins with the line's number.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text[..at.min(text.len())].matches('\n').count() + 1;
            format!("{line}: {}", error.message())
        })?;
        let line_of = |key: &str| {
            let found = text.lines().position(|line| line.trim_start().starts_with(key));
            found.map_or(1, |index| index + 1)
        };
        let ranges: [(&str, u64, u64, u64); 9] = [
            ("slice_us", config.slice_us, 1, 1_000_000),
            ("steal_node_limit", config.steal_node_limit.into(), 1, 1024),
            ("load_publish_us", config.load_publish_us, 0, 1_000_000),
            ("task_slice_us", config.task_slice_us, 100, 100_000),
            ("wakeup_granularity_us", config.wakeup_granularity_us, 0, 100_000),
            ("headroom_window_us", config.headroom_window_us, 10_000, 1_000_000),
            (
                "headroom_tolerance_us",
                config.headroom_tolerance_us,
                1,
                config.headroom_window_us,
            ),
            ("max_groups", config.max_groups.into(), 64, 65_536),
            (
                "wakeup_granularity_us",
                config.wakeup_granularity_us,
                0,
                config.task_slice_us * 10,
            ),
        ];
        for (key, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(format!(
                    "{}: {key} = {value}: allowed are {least} to {most}",
                    line_of(key)
                ));
            }
        }
        Ok(config)
    }

    /// As the BPF program takes it.
    pub(crate) fn settings(&self) -> Settings {
        const US: u64 = 1_000;
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
                    slice_ns: 500 * US,
                    burst_off: 1,
                    ..bandwidth
                },
                load: pl::LoadConfig {
                    publish_ns: self.load_publish_us * US,
                },
                fair: pl::FairConfig {
                    slice_ns: self.task_slice_us * US,
                    latency_ns: 0,
                    sleeper_credit_ns: self.task_slice_us * US,
                    wakeup_gran_ns: self.wakeup_granularity_us * US,
                    wait_max_ns: 1_000_000_000,
                    pull_ns: 10_000_000,
                    lag_max_ns: 100_000_000,
                },
                refresh_ns: 1_000_000,
            },
            steal: pl::StealConfig {
                enabled: self.steal.into(),
                node_limit: self.steal_node_limit,
                cost_ns: 10_000,
            },
            headroom: pl::HeadroomConfig {
                window_ns: self.headroom_window_us * US,
                tolerance_ns: self.headroom_tolerance_us * US,
                steps: 20,
                reserved: 0,
            },
            min_run_ns: 50 * US,
            park_max_ns: 5_000_000 * US,
            sync_wait_ns: 200 * US,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(Config::parse(""), Ok(Config::default()));
    }

    #[test]
    fn errors_name_line_value_and_range() {
        assert_eq!(
            Config::parse("steal = true\nslice_us = 0\n"),
            Err("2: slice_us = 0: allowed are 1 to 1000000".into())
        );
        assert!(Config::parse("burst = true\nbrust = true\n")
            .unwrap_err()
            .starts_with("2: unknown field `brust`"));
        assert!(Config::parse("steal = 1\n")
            .unwrap_err()
            .starts_with("1: invalid type"));
    }
}
