// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy's own class: turns as its C headers say, by one of two rules.
mod cfs;
mod eevdf;

use crate::behaviour::Owed;
use crate::class::{Bound, Class, CpuSeen, Entry, Needs, Seen, Shape};
use crate::config::{Fair, TaskId};
use eevdf::Eevdf;

/// The policy of policy/*.h, by the rules of [`crate::Policy::fair`].
pub struct Plimsoll {
    fair: Fair,
    /// Its lines and turns, from the run's beginning; `None`: [`Fair::Cfs`], which keeps what it needs in the engine's tasks.
    eevdf: Option<Box<Eevdf>>,
}

impl Plimsoll {
    /// By these rules.
    pub fn new(fair: Fair) -> Self {
        Self { fair, eevdf: None }
    }
}

impl Class for Plimsoll {
    fn begin(&mut self, shape: &Shape) {
        self.eevdf = (self.fair == Fair::Eevdf).then(|| Box::new(Eevdf::new(shape)));
    }

    #[inline]
    fn needs(&self) -> Needs {
        let eevdf = self.eevdf.is_some();
        Needs {
            bound: eevdf,
            charged: eevdf,
            // The bound that the engine checks is of vruntimes. By lag and deadline what has waited for `wait_max_ns` has a turn.
            bounds_waits: !eevdf,
        }
    }

    fn born(&mut self, task: TaskId) {
        if let Some(eevdf) = &mut self.eevdf {
            eevdf.born(task.0);
        }
    }

    #[inline]
    fn moved(&mut self, entry: &mut Entry, from: &CpuSeen) {
        if self.eevdf.is_none() {
            cfs::moved(entry, from);
        }
    }

    #[inline]
    fn place(&mut self, entry: &mut Entry, woken: bool, alone: Option<u64>) {
        if self.eevdf.is_none() {
            cfs::place(entry, woken, alone);
        }
    }

    #[inline]
    fn join(&mut self, entry: &mut Entry, bound: Bound) {
        if let Some(eevdf) = &mut self.eevdf {
            eevdf.join(entry, bound);
        }
    }

    #[inline]
    fn leave(&mut self, entry: &mut Entry, sleeps: bool) {
        if let Some(eevdf) = &mut self.eevdf {
            eevdf.leave(entry, sleeps);
        }
    }

    #[inline]
    fn key(&self, seen: &Seen) -> u64 {
        match &self.eevdf {
            None => seen.policy.vruntime,
            Some(eevdf) => eevdf.key(seen.task.0),
        }
    }

    #[inline]
    fn pick(&mut self, on: &CpuSeen, now_ns: u64, first: TaskId) -> TaskId {
        match &self.eevdf {
            None => first,
            Some(eevdf) => TaskId(eevdf.pick(on, now_ns)),
        }
    }

    #[inline]
    fn picked(&mut self, entry: &mut Entry) -> u64 {
        match &mut self.eevdf {
            None => cfs::picked(entry),
            Some(eevdf) => eevdf.picked(entry),
        }
    }

    #[inline]
    fn ran(&mut self, entry: &mut Entry, ran_ns: u64, leaves: bool) {
        match &mut self.eevdf {
            None => cfs::ran(entry, ran_ns),
            Some(eevdf) => eevdf.ran(entry, ran_ns, leaves),
        }
    }

    #[inline]
    fn tick(&mut self, entry: &mut Entry, outweighed: bool) -> bool {
        match &mut self.eevdf {
            None => outweighed,
            Some(eevdf) => {
                eevdf.tick(entry);
                false
            }
        }
    }

    #[inline]
    fn yields(&mut self, entry: &mut Entry, first: Option<u64>) {
        match &mut self.eevdf {
            None => cfs::yields(entry, first),
            Some(eevdf) => eevdf.yields(entry),
        }
    }

    #[inline]
    fn comes(&self, woken: &Seen, running: &Seen) -> Option<u64> {
        match &self.eevdf {
            None => cfs::preempts(woken, running).then_some(0),
            Some(eevdf) => Some(eevdf.comes(woken, running)),
        }
    }

    fn owes_nothing(&self, woken: &Seen, running: &Seen) -> Option<bool> {
        Some(self.eevdf.as_ref()?.owes_nothing(woken, running))
    }

    fn owed(&mut self, woken: &Seen, owed: Owed) {
        if let Some(eevdf) = &mut self.eevdf {
            eevdf.owed(woken, owed);
        }
    }

    fn looks(&self, _: &CpuSeen, _: Option<u64>, _: &CpuSeen, _: &Seen) -> bool {
        self.eevdf.is_some()
    }

    fn pulls(&mut self, entry: &mut Entry, to: &CpuSeen, own: Option<u64>) -> bool {
        match &mut self.eevdf {
            None => true,
            Some(eevdf) => eevdf.pulls(entry, to, own),
        }
    }

    fn check(&self, now_ns: u64) {
        if let Some(eevdf) = &self.eevdf {
            eevdf.check(now_ns);
        }
    }
}
