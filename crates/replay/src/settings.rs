// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a replay is run with: limits of groups, and what is different about the machine.
use crate::error::SettingsError;
use crate::program::Program;
use plimsoll_sim::policy::{BwLimits, BwPart};

/// Whose rules the limits follow. The numbers of the recording come from a kernel: mainline is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Semantics {
    /// As the kernel's fair class does it: noticed at ticks, burst at most quota.
    #[default]
    Mainline,
    /// As `plimsoll run` does it: noticed on time, burst may exceed quota.
    Published,
}

/// One group's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// `None`: no limit.
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
    /// cpu.weight
    pub weight: u32,
    /// cpu.headroom, percent; 0: off. Published semantics only.
    pub headroom_percent: u32,
}

impl GroupSettings {
    /// CPUs that the group may use in the long run; `None`: all.
    pub fn cpus(&self) -> Option<f64> {
        Some(self.quota_us? as f64 / self.period_us as f64)
    }
}

/// Everything that one replay depends on, beside the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// For each group of the program.
    pub groups: Vec<GroupSettings>,
    /// CPUs of the machine; `None`: as recorded.
    pub cpus: Option<u32>,
    /// Without what the rest of the machine took while recording.
    pub alone: bool,
    /// CPU time that all recorded work takes, as a share of what it took in the recording: above 1 on a slower machine.
    pub work_scale: f64,
    /// With what the recorder took of the threads' CPU time, as while it recorded.
    pub with_recorder: bool,
    pub semantics: Semantics,
    /// Names the random stream from which period boundaries are drawn that the recording does not show.
    pub seed: u64,
    /// All are later by this share of a period; 0 up to 1.
    pub phase: f64,
    /// The replay ends so long after its beginning, ns, whatever is left then; `None`: when all is done, or as long as was
    /// recorded for clients that wait.
    pub until_ns: Option<u64>,
}

impl Settings {
    /// As recorded, but for the recorder: what is foretold goes on from here.
    pub fn unrecorded(program: &Program) -> Settings {
        Settings {
            with_recorder: false,
            ..Settings::recorded(program)
        }
    }

    /// As recorded.
    pub fn recorded(program: &Program) -> Settings {
        let of = |g: &crate::groups::Group| GroupSettings {
            quota_us: g.quota_us,
            period_us: g.period_us,
            burst_us: g.burst_us,
            weight: g.weight,
            headroom_percent: 0,
        };
        Settings {
            groups: program.groups.iter().map(of).collect(),
            cpus: None,
            alone: false,
            work_scale: 1.0,
            with_recorder: true,
            semantics: Semantics::Mainline,
            seed: 1,
            phase: 0.0,
            until_ns: None,
        }
    }

    /// Changes what a user asks for, each as [`Settings::set`] does, and refuses what has no effect on what came out.
    pub fn set_all(&mut self, program: &Program, assignments: &[String]) -> Result<(), SettingsError> {
        for assignment in assignments {
            self.set(program, assignment)?;
        }
        self.check(program)?;
        assignments
            .iter()
            .try_for_each(|assignment| self.check_effect(program, assignment))
    }

    /// Refuses what these semantics do not have.
    pub(crate) fn check(&self, program: &Program) -> Result<(), SettingsError> {
        let published = self.semantics == Semantics::Published;
        let mut groups = self.groups.iter().zip(&program.groups);
        match groups.find(|(own, _)| own.headroom_percent > 0 && !published) {
            None => Ok(()),
            Some((own, group)) => Err(SettingsError {
                what: format!("group.{}.headroom_percent", group.path.trim_start_matches('/')),
                value: own.headroom_percent.to_string(),
                allowed: "0, as the kernel has no headroom; with policy.semantics=published 0 to 100".into(),
            }),
        }
    }

    /// Refuses a period or burst that the user gives to a group without a quota. Recordings may have them: the kernel
    /// keeps both for the next quota.
    fn check_effect(&self, program: &Program, assignment: &str) -> Result<(), SettingsError> {
        let (key, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        let Some((path, knob)) = group_knob(key.trim()) else {
            return Ok(());
        };
        let Some(ix) = program.group(&path) else {
            return Ok(());
        };
        let group = &self.groups[ix as usize];
        let without_quota = match knob {
            "period_us" => false,
            "burst_us" => group.burst_us == 0,
            _ => true,
        };
        if without_quota || group.quota_us.is_some() {
            return Ok(());
        }
        Err(SettingsError {
            what: key.trim().into(),
            value: value.trim().into(),
            allowed: "with a quota only, and quota_us is max".into(),
        })
    }

    /// Changes one value: `group.PATH.quota_us=200000`, `group.PATH.weight=50`, `machine.cpus=4`, `machine.others=none`,
    /// `work.percent=110`, `policy.semantics=published`.
    pub fn set(&mut self, program: &Program, assignment: &str) -> Result<(), SettingsError> {
        const KEYS: &str =
            "group.PATH.quota_us, .period_us, .burst_us, .weight or .headroom_percent, machine.cpus, machine.others, \
                            work.percent, policy.semantics, seed; then = and a value";
        let bad = |value: &str, allowed: &str| SettingsError {
            what: assignment.split('=').next().unwrap_or(assignment).into(),
            value: format!("{value:?}"),
            allowed: allowed.into(),
        };
        let (key, value) = assignment.split_once('=').ok_or_else(|| bad(assignment, KEYS))?;
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        let number = |low: u64, high: u64| match value.parse::<u64>() {
            Ok(n) if (low..=high).contains(&n) => Ok(n),
            _ => Err(bad(value, &format!("a whole number from {low} to {high}"))),
        };
        let limit = |part: BwPart| {
            let allowed = BwLimits::NONE.allowed(part, false);
            number(*allowed.start(), *allowed.end())
        };
        match key {
            "machine.cpus" => self.cpus = Some(number(1, 4096)? as u32),
            "machine.others" => {
                self.alone = match value {
                    "recorded" => false,
                    "none" => true,
                    _ => return Err(bad(value, "recorded, none")),
                }
            }
            "work.percent" => self.work_scale = number(1, 10_000)? as f64 / 100.0,
            "seed" => self.seed = number(0, u64::MAX)?,
            "policy.semantics" => {
                self.semantics = match value {
                    "mainline" => Semantics::Mainline,
                    "published" => Semantics::Published,
                    _ => return Err(bad(value, "mainline, published")),
                }
            }
            _ => {
                let (path, knob) = group_knob(key).ok_or_else(|| bad(key, KEYS))?;
                let paths = || {
                    program
                        .groups
                        .iter()
                        .map(|g| g.path.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                let ix = program.group(&path).ok_or_else(|| bad(&path, &paths()))?;
                let group = &mut self.groups[ix as usize];
                match knob {
                    "quota_us" if path == "/" => return Err(bad(value, "no limit on the root group")),
                    "period_us" | "burst_us" | "weight" | "headroom_percent" if path == "/" => {
                        return Err(bad(value, "no knobs on the root group"))
                    }
                    "quota_us" if matches!(value, "max" | "-1") => group.quota_us = None,
                    "quota_us" => group.quota_us = Some(limit(BwPart::Quota)?),
                    "period_us" => group.period_us = limit(BwPart::Period)?,
                    "burst_us" => group.burst_us = limit(BwPart::Burst)?,
                    "weight" if program.groups[ix as usize].idle => {
                        return Err(bad(value, "no weight on a group with cpu.idle 1"))
                    }
                    "weight" => group.weight = number(1, 10_000)? as u32,
                    "headroom_percent" => group.headroom_percent = number(0, 100)? as u32,
                    _ => return Err(bad(knob, KEYS)),
                }
            }
        }
        Ok(())
    }
}

/// Path and knob of `group.PATH.KNOB`.
fn group_knob(key: &str) -> Option<(String, &str)> {
    let (path, knob) = key.strip_prefix("group.")?.rsplit_once('.')?;
    Some((format!("/{}", path.trim_matches('/')), knob))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_trace::{example, Timeline};
    use std::sync::Arc;

    /// What refuses these settings; the group's kernel had a period of 50 ms and a burst, and no limit.
    fn refusal(sets: &[&str]) -> Option<String> {
        let (mut header, events) = example::open_loop(10);
        (header.groups[1].period_us, header.groups[1].burst_us) = (Some(50_000), Some(10_000));
        let timeline = Timeline::build(&header, &events);
        let program = Program::build(&header, &timeline, None, None, 60).unwrap();
        let (program, machine) = (Arc::new(program), crate::machine(&header, &timeline));
        let mut settings = Settings::recorded(&program);
        let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
        let refused = settings.set_all(&program, &sets).err();
        if refused.is_none() {
            crate::replay(&program, &machine, &settings, None).unwrap();
        }
        refused.map(|error| error.to_string())
    }

    #[test]
    fn period_and_burst_that_no_quota_goes_with_are_refused_if_the_user_gives_them() {
        for set in ["group.web.period_us=10000", "group.web.burst_us=5000"] {
            let error = refusal(&[set]).expect(set);
            assert!(error.contains("a quota only, and quota_us is max"), "{error}");
            assert_eq!(refusal(&[set, "group.web.quota_us=20000"]), None);
            assert_eq!(refusal(&["group.web.quota_us=20000", set]), None);
            assert!(refusal(&[set, "group.web.quota_us=max"]).is_some());
        }
        for sets in [&[][..], &["machine.cpus=1"], &["group.web.burst_us=0"]] {
            assert_eq!(refusal(sets), None, "{sets:?}");
        }
    }

    #[test]
    fn headroom_is_refused_under_the_kernels_semantics() {
        let (half, published) = ("group.web.headroom_percent=50", "policy.semantics=published");
        let error = refusal(&[half]).unwrap();
        assert!(
            error.starts_with("group.web.headroom_percent: 50 is not allowed; allowed: 0"),
            "{error}"
        );
        assert!(refusal(&[published, half, "policy.semantics=mainline"]).is_some());
        assert_eq!(refusal(&[half, published]), None);
        assert_eq!(refusal(&["group.web.headroom_percent=0"]), None);
        assert!(refusal(&[published, "group.web.headroom_percent=101"]).is_some());
    }
}
