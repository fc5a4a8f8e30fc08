// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes Perfetto traces: the few messages of its protobuf format that a timeline of a simulation needs.
//!
//! The crate perfetto_protos generates types for all of Perfetto's 398 .proto files (0.51); this needs nine messages of
//! them, so their field numbers are declared here. Source of each:
//! protos/perfetto/trace/ in Perfetto's repository (stable numbers, proto2).
//!
//! CPUs are written as ftrace scheduling events, not as slices of our own, so that the Perfetto UI shows its CPU view
//! and its SQL tables `sched` and `thread_state` hold the simulated machine.
use plimsoll_protobuf::Message;
use std::io::{Result, Write};

/// Scheduling events of one CPU are written in bundles of about this size.
const BUNDLE_BYTES: usize = 1 << 15;

// TracePacket
const FTRACE_EVENTS: u32 = 1;
const PROCESS_TREE: u32 = 2;
const TIMESTAMP: u32 = 8;
const SEQUENCE_ID: u32 = 10;
const TRACK_EVENT: u32 = 11;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;

/// The one sequence of packets in our traces.
const SEQUENCE: u64 = 1;
const INCREMENTAL_STATE_CLEARED: u64 = 1;

/// What a thread does after it was switched out, in the kernel's encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrevState {
    /// Preempted: still runnable.
    Runnable = 0,
    /// Sleeps until it is woken.
    Sleeping = 1,
    /// Exited.
    Dead = 16,
}

/// A process or thread as ftrace names it. `tid` 0 is the idle thread of every CPU.
#[derive(Debug, Clone, Copy)]
pub struct Thread<'a> {
    pub tid: u32,
    pub name: &'a str,
}

pub const IDLE: Thread<'static> = Thread {
    tid: 0,
    name: "swapper",
};

/// A trace being written. Tracks are numbered by the caller, from 1.
pub struct TraceWriter<W: Write> {
    out: W,
    started: bool,
    /// Encoded events of each CPU that wait for their bundle.
    bundles: Vec<Message>,
}

impl<W: Write> TraceWriter<W> {
    pub fn new(out: W, nr_cpus: usize) -> Self {
        let bundles = (0..nr_cpus).map(|_| Message::default()).collect();
        TraceWriter {
            out,
            started: false,
            bundles,
        }
    }

    fn packet(&mut self, packet: &mut Message) -> Result<()> {
        packet.number(SEQUENCE_ID, SEQUENCE);
        if !self.started {
            self.started = true;
            packet.number(SEQUENCE_FLAGS, INCREMENTAL_STATE_CLEARED);
        }
        let mut trace = Message::default();
        trace.message(1, packet);
        self.out.write_all(trace.as_bytes())
    }

    /// Names a process and its threads.
    pub fn process(&mut self, process: Thread<'_>, threads: &[Thread<'_>]) -> Result<()> {
        let mut tree = Message::default();
        let mut entry = Message::default();
        entry.number(1, process.tid.into()).text(3, process.name);
        tree.message(1, &entry);
        for thread in threads {
            let mut entry = Message::default();
            entry
                .number(1, thread.tid.into())
                .text(2, thread.name)
                .number(3, process.tid.into());
            tree.message(2, &entry);
        }
        self.packet(
            Message::default()
                .number(TIMESTAMP, 0)
                .message(PROCESS_TREE, &tree),
        )
    }

    /// A row of the timeline, below `parent` (0: at the top).
    pub fn track(&mut self, track: u64, parent: u64, name: &str) -> Result<()> {
        self.descriptor(track, parent, name, None)
    }

    /// A row with a curve.
    pub fn counter_track(&mut self, track: u64, parent: u64, name: &str, unit: &str) -> Result<()> {
        self.descriptor(track, parent, name, Some(unit))
    }

    fn descriptor(&mut self, track: u64, parent: u64, name: &str, unit: Option<&str>) -> Result<()> {
        let mut descriptor = Message::default();
        descriptor.number(1, track).text(2, name);
        if parent != 0 {
            descriptor.number(5, parent);
        }
        if let Some(unit) = unit {
            let mut counter = Message::default();
            counter.text(6, unit);
            descriptor.message(8, &counter);
        }
        self.packet(Message::default().message(TRACK_DESCRIPTOR, &descriptor))
    }

    fn event(&mut self, at_ns: u64, event: &Message) -> Result<()> {
        self.packet(
            Message::default()
                .number(TIMESTAMP, at_ns)
                .message(TRACK_EVENT, event),
        )
    }

    pub fn slice_begin(&mut self, track: u64, at_ns: u64, name: &str) -> Result<()> {
        self.event(
            at_ns,
            Message::default().number(9, 1).number(11, track).text(23, name),
        )
    }

    pub fn slice_end(&mut self, track: u64, at_ns: u64) -> Result<()> {
        self.event(at_ns, Message::default().number(9, 2).number(11, track))
    }

    pub fn instant(&mut self, track: u64, at_ns: u64, name: &str) -> Result<()> {
        self.event(
            at_ns,
            Message::default().number(9, 3).number(11, track).text(23, name),
        )
    }

    pub fn counter(&mut self, track: u64, at_ns: u64, value: i64) -> Result<()> {
        // A negative value is its two's complement in ten bytes, as proto2's int64 is.
        self.event(
            at_ns,
            Message::default()
                .number(9, 4)
                .number(11, track)
                .number(30, value as u64),
        )
    }

    /// One CPU goes from a thread to another. Call in order of time for each CPU.
    pub fn switch(
        &mut self,
        cpu: usize,
        at_ns: u64,
        prev: Thread<'_>,
        prev_state: PrevState,
        next: Thread<'_>,
    ) -> Result<()> {
        let mut switch = Message::default();
        switch
            .text(1, prev.name)
            .number(2, prev.tid.into())
            .number(3, 120)
            .number(4, prev_state as u64);
        switch
            .text(5, next.name)
            .number(6, next.tid.into())
            .number(7, 120);
        self.ftrace(cpu, at_ns, prev.tid, 4, &switch)
    }

    /// A thread becomes runnable and is meant for `target_cpu`; `cpu` is where that was decided, `waker` runs there.
    pub fn waking(
        &mut self,
        cpu: usize,
        at_ns: u64,
        waker: u32,
        woken: Thread<'_>,
        target_cpu: usize,
    ) -> Result<()> {
        let mut waking = Message::default();
        waking
            .text(1, woken.name)
            .number(2, woken.tid.into())
            .number(3, 120)
            .number(4, 1);
        waking.number(5, target_cpu as u64);
        self.ftrace(cpu, at_ns, waker, 20, &waking)
    }

    fn ftrace(&mut self, cpu: usize, at_ns: u64, tid: u32, field: u32, what: &Message) -> Result<()> {
        let mut event = Message::default();
        event.number(1, at_ns).number(2, tid.into()).message(field, what);
        let bundle = &mut self.bundles[cpu];
        if bundle.as_bytes().is_empty() {
            bundle.number(1, cpu as u64);
        }
        bundle.message(2, &event);
        if bundle.as_bytes().len() >= BUNDLE_BYTES {
            self.flush(cpu)?;
        }
        Ok(())
    }

    fn flush(&mut self, cpu: usize) -> Result<()> {
        let bundle = std::mem::take(&mut self.bundles[cpu]);
        if bundle.as_bytes().is_empty() {
            return Ok(());
        }
        self.packet(Message::default().message(FTRACE_EVENTS, &bundle))
    }

    /// Writes what waits and gives the output back.
    pub fn finish(mut self) -> Result<W> {
        for cpu in 0..self.bundles.len() {
            self.flush(cpu)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}
