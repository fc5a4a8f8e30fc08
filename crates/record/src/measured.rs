// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the BPF programs cost, measured in the first part of a recording.
use crate::error::RecordError;
use crate::probes::{Cost, Probes};
use crate::record::Report;
use crate::sink::Sink;
use crate::wire::{self, Batch};
use plimsoll_trace::RECORDER_EVENT_MAX_NS;
use std::cell::RefCell;

pub struct Measured {
    cost: Option<Cost>,
    events: u64,
    ns: u64,
}

impl Measured {
    /// Ends the measurement. The ring buffer has just been emptied.
    pub fn now(probes: &mut Probes, sink: &RefCell<Sink>, ns: i64) -> Result<Measured, RecordError> {
        let cost = probes.cost();
        let unsent: usize = probes
            .unsent()?
            .iter()
            .filter_map(|unsent| Some(Batch::parse(&unsent.batch)?.events.len() / wire::EVENT))
            .sum();
        Ok(Measured {
            cost,
            events: sink.borrow().events + unsent as u64,
            ns: ns as u64,
        })
    }

    /// What one event took; 0: not measured. An event takes two runs of programs at most, as counted under
    /// `bench/record-overhead.sh`: where most runs are of threads that are not recorded, those would be counted in.
    pub fn event_ns(&self) -> u64 {
        let Some(cost) = self.cost else { return 0 };
        let per_event = cost.run_time_ns / self.events.max(1);
        per_event
            .min(2 * cost.run_time_ns / cost.runs.max(1))
            .min(RECORDER_EVENT_MAX_NS)
    }

    /// `events`: of the whole recording.
    pub fn put_into(&self, report: &mut Report, events: u64) {
        let Some(cost) = self.cost else { return };
        let share = events.max(self.events) as f64 / self.events.max(1) as f64;
        report.bpf_ns = Some((cost.run_time_ns as f64 * share) as u64);
        report.bpf_runs = cost.runs;
        report.bpf_run_ns = cost.run_time_ns / cost.runs.max(1);
        report.measured_ns = self.ns;
    }
}
