// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace ready to be replayed: what each thread does, with causes instead of times. `build.rs` makes one.
use crate::arrivals::Pacing;
use crate::clients::Clients;
use crate::groups::{counts, find, is_below, Group};
use crate::pairing::Pairing;
use crate::placement::{Seat, ThreadPlace};
use crate::pools::Pools;
use crate::request::{RequestClass, RequestInfo};
use crate::rivals::{Demand, Rival};
use plimsoll_sim::Mainline;
use std::ops::Range;

pub(crate) type BurstIx = u32;
pub(crate) const NONE: u32 = u32::MAX;

/// When a burst may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At `at_ns` since the beginning.
    At,
    /// `at_ns` after the thread's burst before.
    After,
    /// When its waker gets there.
    Message,
    /// Likewise; the first of a thread.
    Fork,
    /// When the data of its request is there, and what its thread did in one go before in the recording is begun.
    Data,
    /// Likewise a part of what its thread did in one go: when another thread has sent what it reads.
    Sent,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub work_ns: u64,
    /// See [`Start`].
    pub at_ns: u64,
    /// First of its actions; they end where those of the next burst begin.
    pub actions: u32,
    pub thread: u32,
    /// The request that begins as this burst becomes due, for bursts that no thread wakes; else [`NONE`].
    pub request: u32,
    pub start: Start,
    /// Continues the burst before: see the head of this file.
    pub strict: bool,
    /// Set off by an arrival that keeps its own time: see [`crate::loops`].
    pub open: bool,
    pub exits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Wake(BurstIx),
    Fork(BurstIx),
    Begin(u32),
    /// Not before its data is there.
    Await(u32),
    End(u32),
    /// Ends of an exchange. `segments.rs` makes wake-ups of them.
    Send(u32),
    Receive(u32),
    /// Into [`Program::delayed`].
    WakeLater(u32),
}

impl Deed {
    /// The burst that it wakes, now or later.
    pub fn wakes(self, delayed: &[Delayed]) -> Option<BurstIx> {
        match self {
            Deed::Wake(burst) => Some(burst),
            Deed::WakeLater(later) => Some(delayed[later as usize].burst),
            _ => None,
        }
    }
}

/// A burst that is woken a while after something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delayed {
    pub burst: BurstIx,
    pub after_ns: u64,
}

/// All that threads do; see [`Program`].
pub(crate) struct Work {
    pub bursts: Vec<Burst>,
    pub actions: Vec<Action>,
    pub delayed: Vec<Delayed>,
    pub seats: Vec<Seat>,
}

/// Something that happens after `at_ns` of a burst's work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action {
    pub at_ns: u64,
    pub deed: Deed,
}

/// A thread of the trace.
#[derive(Clone, Debug)]
pub struct Thread {
    pub name: String,
    /// Into [`Program::groups`].
    pub group: u32,
    /// The only CPU of a kernel thread that belongs to one.
    pub(crate) pinned: Option<u32>,
    pub(crate) place: ThreadPlace,
    pub(crate) bursts: Range<BurstIx>,
    /// CPU time in the recording.
    pub work_ns: u64,
    /// What the recorder took of that: see [`crate::recorder`].
    pub(crate) recorder_ns: u64,
}

impl Thread {
    /// What is left of its CPU time without the recorder, as a share of it.
    pub(crate) fn own_share(&self) -> f64 {
        1.0 - self.recorder_ns as f64 / self.work_ns.max(1) as f64
    }
}

/// A trace, ready to be replayed any number of times.
#[derive(Clone, Debug)]
pub struct Program {
    pub threads: Vec<Thread>,
    pub groups: Vec<Group>,
    pub classes: Vec<RequestClass>,
    /// The group that is planned for: index into `groups`.
    pub target: u32,
    /// CPU time of threads that were not recorded, if the recorder noted it.
    pub others_ns: u64,
    /// What was seen on the sockets, if requests are what those say.
    pub sockets: Option<SocketCounts>,
    /// After how long what the service asked others was answered, ns, ascending; each part of an answer that was read by itself.
    pub answered_ns: Vec<u64>,
    /// Whether answers can be told apart, if requests are what wake-ups of clients say.
    pub pairing: Pairing,
    /// Versions of Go that the planned group's processes were built with, each once.
    pub go_versions: Vec<String>,
    /// CPU time of that group and those below, of what arrivals set off that keep their own times.
    pub open_work_ns: u64,
    /// Length of the recording.
    pub duration_ns: u64,
    /// Start of the recording on its own clock.
    pub clock_start_ns: u64,
    /// The same on the wall clock, in ns since 1970; `None`: the recorder did not say.
    pub wall_start_ns: Option<i64>,
    /// How timers and devices were classed, by thread: name, kind, pacing, wake-ups.
    pub pacings: Vec<(String, &'static str, Pacing, u64)>,
    pub switches: u64,
    /// What the group that is planned for cost, from beginning to end.
    pub stretches: Vec<Stretch>,
    /// Runnable threads on a CPU from which a woken one seeks an idle CPU, as recorded.
    pub(crate) seeks_idle_from: u32,
    /// What the kernel charged beyond the work, for each time that a CPU came back from idle for the group that is planned for.
    pub(crate) idle_charged_ns: u64,
    /// Woken threads mostly wait for the running thread of their group, as recorded.
    pub(crate) spares_own_group: bool,
    /// The recorded kernel's rules.
    pub(crate) kernel: Mainline,
    pub(crate) job: bool,
    pub(crate) bursts: Vec<Burst>,
    /// What each burst is a part of; none, if requests are not what sockets say.
    pub(crate) parts: Vec<Part>,
    /// Where each burst ran first.
    pub(crate) seats: Vec<Seat>,
    pub(crate) actions: Vec<Action>,
    /// What [`Deed::WakeLater`] wakes.
    pub(crate) delayed: Vec<Delayed>,
    /// What comes from outside for threads that do each other's work, of `delayed`; so long after the beginning.
    pub(crate) arriving: Range<u32>,
    pub(crate) pools: Pools,
    /// Of each burst that begins what a thread does in one go, how many those are; 0 of others.
    pub(crate) cut_sizes: Vec<u32>,
    /// When each burst began in the recording; none, if no threads do each other's work.
    pub(crate) at_ns: Vec<u64>,
    pub(crate) requests: Vec<RequestInfo>,
    /// What the rest of the machine wanted of each CPU.
    pub(crate) rivals: Vec<Rival>,
    pub(crate) clients: Clients,
    /// Of each group: only rivals are in it.
    pub(crate) only_rivals: Vec<bool>,
}

/// What a burst is a part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The request that it works for; [`NONE`]: not known.
    pub request: u32,
    /// The burst in which its thread worked for that request before; [`NONE`]: it is the first.
    pub before: BurstIx,
    /// That in which its thread worked for it next; likewise.
    pub next: BurstIx,
    /// The burst that wakes it, at once or later; [`NONE`]: none does.
    pub waker: BurstIx,
    /// The first of what its thread did in one go.
    pub first: BurstIx,
}

impl Part {
    pub const UNKNOWN: Part = Part {
        request: NONE,
        before: NONE,
        next: NONE,
        waker: NONE,
        first: NONE,
    };
}

/// What was seen on the connections from which requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Connections with at least one request.
    pub connections: u64,
    /// Requests that were not the only ones of their connection while they lasted.
    pub overlapping: u64,
    /// Requests whose data came in parts, or overlapped.
    pub in_parts: u64,
    /// Without an answer as the recording or the connection ended; not counted as requests.
    pub unanswered: u64,
    /// Answered by no thread that was recorded; not counted as requests.
    pub unseen: u64,
}

/// Length of a stretch.
pub const STRETCH_NS: u64 = 100_000_000;

/// What the planned group did in one stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stretch {
    pub work_ns: f64,
    /// Requests; one that lasted longer than the stretch counts with the share of it that fell into it.
    pub requests: f64,
}

/// Where the actions of a burst are; `len`: of those of all.
pub(crate) fn actions_of(bursts: &[Burst], len: usize, burst: usize) -> Range<usize> {
    let end = bursts.get(burst + 1).map_or(len, |next| next.actions as usize);
    bursts[burst].actions as usize..end
}

/// Work until a request is read, of what is done in a burst.
pub(crate) fn lead_ns(actions: &[Action], request: u32) -> u64 {
    let read = actions.iter().find(|action| action.deed == Deed::Await(request));
    read.map_or(0, |action| action.at_ns)
}

impl Start {
    /// A part of a burst that was cut, but for its first.
    pub fn is_part(self) -> bool {
        matches!(self, Start::Data | Start::Sent)
    }
}

impl Program {
    /// Bytes that the program takes.
    pub fn memory_bytes(&self) -> u64 {
        let of = |count: usize, size: usize| (count * size) as u64;
        of(self.bursts.len(), size_of::<Burst>() + size_of::<Seat>())
            + of(self.parts.len(), size_of::<Part>())
            + of(self.actions.len(), size_of::<Action>())
            + of(self.delayed.len(), size_of::<Delayed>())
            + of(self.requests.len(), size_of::<RequestInfo>())
            + of(self.threads.len(), size_of::<Thread>())
            + of(
                self.rivals.iter().map(|r| r.demands.len()).sum(),
                size_of::<Demand>(),
            )
    }

    /// Whether others compete in a replay.
    pub fn has_rivals(&self) -> bool {
        !self.rivals.is_empty()
    }

    /// Whether threads outside of the planned group, recorded or not, had so much of the recorded CPUs that its threads wait for theirs
    /// more than for each other. Source of the share: chosen; a client on the same machine takes less.
    pub(crate) fn is_beside_others(&self, nr_cpus: u32) -> bool {
        let outside = self
            .threads
            .iter()
            .filter(|t| !is_below(&self.groups, t.group, self.target));
        let outside_ns: u64 = outside.map(|t| t.work_ns).sum();
        self.has_rivals() || outside_ns > self.duration_ns * u64::from(nr_cpus) / 2
    }

    /// What the recorder took of the planned group's CPU time, as a share of it.
    pub fn recorder_share(&self) -> f64 {
        let own = self
            .threads
            .iter()
            .filter(|t| is_below(&self.groups, t.group, self.target));
        let [recorder_ns, work_ns] = own.fold([0; 2], |[recorder, work], t| {
            [recorder + t.recorder_ns, work + t.work_ns]
        });
        recorder_ns as f64 / work_ns.max(1) as f64
    }

    pub fn nr_requests(&self) -> u64 {
        self.requests.len() as u64
    }

    /// For how long the answers were held that left at least a millisecond after they were written, ns, ascending. A client
    /// across a network is as far away.
    pub fn held_ns(&self) -> Vec<u64> {
        let held = self.requests.iter().map(|r| r.held_ns);
        let mut held: Vec<u64> = held.filter(|&ns| ns >= 1_000_000).collect();
        held.sort_unstable();
        held
    }

    /// When a request began in the recording, of the first one on (0); `None`: there are no more.
    pub fn request_begins_ns(&self, request: u64) -> Option<u64> {
        self.requests.get(request as usize).map(|r| r.begin_ns)
    }

    /// Groups right below the planned one that did their share of its work, such as a pod's containers.
    pub fn members(&self) -> impl Iterator<Item = &Group> {
        let all_ns = self.groups[self.target as usize].work_ns;
        self.groups
            .iter()
            .filter(move |g| g.parent == Some(self.target) && counts(g.work_ns, all_ns))
    }

    /// CPU time of the planned group for each request, ns; where there are none, for each second of the recording.
    pub fn cost_ns(&self) -> f64 {
        let times = match self.requests.len() {
            0 => self.duration_ns.max(1) as f64 / 1e9,
            requests => requests as f64,
        };
        self.groups[self.target as usize].work_ns as f64 / times
    }

    /// Share of the planned group's CPU time that arrivals set off which keep their own times.
    pub fn open_share(&self) -> f64 {
        self.open_work_ns as f64 / self.groups[self.target as usize].work_ns.max(1) as f64
    }

    /// Whether most of the group's work is done for clients that wait for the answer before. It is the work that counts:
    /// a thousand short requests of a closed loop leave a queue of long ones as it is.
    pub fn is_closed_loop(&self) -> bool {
        self.open_share() <= 0.5
    }

    /// Whether the requests are pieces of a job that has to be finished: lives of processes.
    pub fn is_job(&self) -> bool {
        self.job
    }

    pub(crate) fn actions_of(&self, burst: BurstIx) -> Range<usize> {
        actions_of(&self.bursts, self.actions.len(), burst as usize)
    }

    /// The pool whose threads may do a burst; `None`: only its own thread may.
    pub(crate) fn pool_of(&self, burst: BurstIx) -> Option<u32> {
        let may_move = self.first_of_cut(burst) != burst;
        self.pools
            .of(self.bursts[burst as usize].thread)
            .filter(|_| may_move)
    }

    /// Work of a burst until it reads its request: a connection is accepted before its data come.
    pub(crate) fn lead_ns(&self, burst: BurstIx, request: u32) -> u64 {
        lead_ns(&self.actions[self.actions_of(burst)], request)
    }

    /// The first of what its thread did in one go with a burst.
    pub(crate) fn first_of_cut(&self, burst: BurstIx) -> BurstIx {
        match self.bursts[burst as usize].start.is_part() {
            true => self.part_of(burst).first,
            false => burst,
        }
    }

    pub(crate) fn sizes_of_cuts(&self) -> Vec<u32> {
        let mut sizes = vec![0; self.bursts.len()];
        for burst in 0..self.bursts.len() as BurstIx {
            sizes[self.first_of_cut(burst) as usize] += 1;
        }
        sizes
    }

    pub(crate) fn part_of(&self, burst: BurstIx) -> Part {
        self.parts.get(burst as usize).copied().unwrap_or(Part::UNKNOWN)
    }

    /// A group by its path.
    pub fn group(&self, path: &str) -> Option<u32> {
        find(&self.groups, path)
    }
}
