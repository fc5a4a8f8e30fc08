// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a simulation is, seen from outside: the share of its simulated time.
use indicatif::ProgressBar;
use plimsoll_sim::observer::{Move, Observer, Stop};
use plimsoll_sim::{GroupId, TaskId};

/// The bar is told this often in a run, and not at every event.
const STEPS: u64 = 1000;

/// Moves a bar, in ns of simulated time, and passes on to another observer what it sees.
pub struct Watched<'a> {
    bar: &'a ProgressBar,
    inner: Option<&'a mut dyn Observer>,
    end_ns: u64,
    told_ns: u64,
    /// When it is told again.
    next_ns: u64,
}

impl<'a> Watched<'a> {
    /// `end_ns`: when the run ends at the latest.
    pub fn new(bar: &'a ProgressBar, end_ns: u64, inner: Option<&'a mut dyn Observer>) -> Self {
        Watched {
            bar,
            inner,
            end_ns,
            told_ns: 0,
            next_ns: 0,
        }
    }

    /// The run has ended, if before its end.
    pub fn finish(mut self) {
        self.tell(self.end_ns);
    }

    fn tell(&mut self, now_ns: u64) {
        // A switch takes time, so it may be at its end after that of the run.
        let now_ns = now_ns.min(self.end_ns);
        self.bar.inc(now_ns.saturating_sub(self.told_ns));
        self.told_ns = self.told_ns.max(now_ns);
        self.next_ns = self.told_ns + self.end_ns / STEPS;
    }

    fn pass(&mut self, now_ns: u64, on: impl FnOnce(&mut dyn Observer)) {
        if now_ns > self.next_ns {
            self.tell(now_ns);
        }
        if let Some(inner) = self.inner.as_deref_mut() {
            on(inner);
        }
    }
}

impl Observer for Watched<'_> {
    fn task(&mut self, now_ns: u64, task: TaskId, name: &str, group: GroupId) {
        self.pass(now_ns, |inner| inner.task(now_ns, task, name, group));
    }
    fn run(&mut self, now_ns: u64, cpu: u32, task: TaskId, group: GroupId) {
        self.pass(now_ns, |inner| inner.run(now_ns, cpu, task, group));
    }
    fn stop(&mut self, now_ns: u64, cpu: u32, task: TaskId, why: Stop) {
        self.pass(now_ns, |inner| inner.stop(now_ns, cpu, task, why));
    }
    fn wake(&mut self, now_ns: u64, task: TaskId, cpu: u32, waker_cpu: u32) {
        self.pass(now_ns, |inner| inner.wake(now_ns, task, cpu, waker_cpu));
    }
    fn migrate(&mut self, now_ns: u64, task: TaskId, from_cpu: u32, to_cpu: u32, why: Move) {
        self.pass(now_ns, |inner| inner.migrate(now_ns, task, from_cpu, to_cpu, why));
    }
    fn throttle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {
        self.pass(now_ns, |inner| inner.throttle(now_ns, group, cpu));
    }
    fn unthrottle(&mut self, now_ns: u64, group: GroupId, cpu: u32) {
        self.pass(now_ns, |inner| inner.unthrottle(now_ns, group, cpu));
    }
    fn pool(&mut self, now_ns: u64, group: GroupId, runtime_ns: i64) {
        self.pass(now_ns, |inner| inner.pool(now_ns, group, runtime_ns));
    }
    fn headroom(&mut self, now_ns: u64, budget_ns: u64, side_used_ns: u64, idle_ns: u64) {
        self.pass(now_ns, |inner| {
            inner.headroom(now_ns, budget_ns, side_used_ns, idle_ns)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Timeline;
    use plimsoll_scenario::Scenario;
    use plimsoll_sim::Simulation;
    use std::path::Path;

    /// The bytes of a timeline, from what every method is told but those that it leaves out.
    fn timeline(bar: Option<&ProgressBar>) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden/limits.toml");
        let scenario = Scenario::load(&path, &[]).unwrap_or_else(|problems| panic!("{problems}"));
        let simulation = Simulation::new(scenario.config()).expect("a checked scenario");
        let names = std::iter::once("/").chain(scenario.groups.iter().map(|group| group.name.as_str()));
        let names = names.map(str::to_string).collect();
        let mut bytes = Vec::new();
        let nr_cpus = scenario.machine.topology.nr_cpus() as usize;
        let mut timeline = Timeline::new(&mut bytes, nr_cpus, names).expect("memory");
        let end_ns = match bar {
            None => simulation.run(Some(&mut timeline)).unwrap().end_ns,
            Some(bar) => {
                let end_ns = scenario.warmup_ns + scenario.duration_ns;
                let mut watched = Watched::new(bar, end_ns, Some(&mut timeline));
                let results = simulation.run(Some(&mut watched)).unwrap();
                let before = bar.position();
                assert!(before > end_ns / 2 && before <= end_ns, "{before} of {end_ns}");
                watched.finish();
                assert_eq!(bar.position(), end_ns);
                results.end_ns
            }
        };
        timeline.finish(end_ns).expect("memory");
        bytes
    }

    #[test]
    fn who_is_told_how_far_a_run_is_changes_nothing_of_it() {
        assert_eq!(timeline(Some(&ProgressBar::hidden())), timeline(None));
    }
}
