// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trace model: events in order of time, and what has to be known beside them.
use serde::{Deserialize, Serialize};

/// Kernel thread id. 0 is the idle task of the CPU on which the event happened.
pub type Tid = u32;
/// Index into [`Header::groups`].
pub type GroupIx = u32;

/// Largest thread id that a Linux kernel hands out (`PID_MAX_LIMIT` on 64 bit).
pub const TID_MAX: u32 = 4 * 1024 * 1024;
/// Largest number of CPUs that a Linux kernel can be built for (`NR_CPUS`).
pub const CPU_MAX: u32 = 8192;
/// Longest recording: `plimsoll record` takes at most 24 h, and ends a little later than asked for.
pub const DURATION_NS_MAX: i64 = 25 * 3600 * 1_000_000_000;

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Time on the clock that [`Clock::name`] names, in ns.
    pub ts_ns: i64,
    /// CPU on which it happened. For a sample: 0, it belongs to no CPU.
    pub cpu: u32,
    pub what: What,
}

/// What a thread that has just been woken, or its group, is owed beside another group's that runs there, in the queue in which the two
/// part, and what that one is; below 0 they owe that. Others in that queue owe the rest, or are owed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// Of service.
    pub own_ns: i32,
    pub beside_ns: i32,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// `cpu` stopped running `prev`, which goes on in `prev_state`, and runs `next`.
    Switch { prev: Tid, prev_state: State, next: Tid },
    /// `waker` (the task current on `cpu`) made `tid` runnable, from `context`.
    Waking { tid: Tid, waker: Tid, context: Context },
    /// `tid` is on the run queue of `target_cpu`. Written by tools that do not know `Waking`.
    Wakeup { tid: Tid, waker: Tid, target_cpu: u32 },
    /// `tid`, which is being woken, was put on the run queue of `target_cpu`: not that of the CPU that it left.
    Placed { tid: Tid, target_cpu: u32 },
    /// `tid`, which waits for a CPU, was moved to the run queue of `target_cpu`.
    Migrate { tid: Tid, target_cpu: u32 },
    /// `tid` has just been woken where another group's thread runs.
    Owed { tid: Tid, owed: Owed },
    /// `parent` made `child`.
    Fork { parent: Tid, child: Tid },
    /// `tid` is gone.
    Exit { tid: Tid },
    /// `tid` belongs to `group` from here on.
    Move { tid: Tid, group: GroupIx },
    /// Cumulative statistics of `group` as they stood.
    Sample { group: GroupIx, stat: Box<CpuStat> },
    /// A probe that starts (`begin`) or ends a request fired in `tid`.
    Request { tid: Tid, begin: bool },
    /// Something happened to a connection of the recorded groups.
    Socket {
        /// The thread that did it; of an arrival: the one whose own system call brought the data (loopback, Unix
        /// streams). 0: none.
        tid: Tid,
        /// [`Connection::id`].
        connection: u64,
        op: SocketOp,
        /// Of arrived, read and wrote; 0 of a read: the other side has closed. 0 of the other ops.
        bytes: u32,
    },
    /// `cpu` ran threads that are not recorded, one after another, up to now: what the rest of the machine takes. Ends
    /// with a switch to a recorded or the idle thread, or, after a while, to another group.
    Others {
        /// Where most of that time went; `None`: not known.
        group: Option<GroupIx>,
        run_ns: u64,
        /// What the last one of that group goes on as.
        state: State,
    },
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOp {
    /// A thread of the recorded groups made it (`connect`).
    Opened,
    /// A thread of the recorded groups took it from its listening socket (`accept`).
    Accepted,
    /// Data came into its receive queue.
    Arrived,
    /// A thread took data out of it.
    Read,
    /// A thread handed data to it to be sent.
    Wrote,
    /// What was written last has left, later than it was written: Nagle's algorithm or a full window held it.
    Left,
    /// Nothing more will come or go: closed or reset, by either side.
    Closed,
}

impl SocketOp {
    pub const ALL: [SocketOp; 7] = [
        SocketOp::Opened,
        SocketOp::Accepted,
        SocketOp::Arrived,
        SocketOp::Read,
        SocketOp::Wrote,
        SocketOp::Left,
        SocketOp::Closed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SocketOp::Opened => "opened",
            SocketOp::Accepted => "accepted",
            SocketOp::Arrived => "arrived",
            SocketOp::Read => "read",
            SocketOp::Wrote => "wrote",
            SocketOp::Left => "left",
            SocketOp::Closed => "closed",
        }
    }

    /// Whether it moves data.
    pub fn has_bytes(self) -> bool {
        matches!(self, SocketOp::Arrived | SocketOp::Read | SocketOp::Wrote)
    }
}

/// What a thread does when the CPU is taken from it. The letters are those of `ps` and of perf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `R`: still wants the CPU (preempted, throttled or yielded).
    Runnable,
    /// `S`: waits for an event, can be interrupted.
    Sleeping,
    /// `D`: waits for an event, cannot be interrupted (mostly storage).
    Uninterruptible,
    /// `T`: stopped or traced.
    Stopped,
    /// `I`: an idle kernel thread, or parked.
    Idle,
    /// `X`: dead.
    Dead,
}

impl State {
    pub const ALL: [State; 6] = [
        State::Runnable,
        State::Sleeping,
        State::Uninterruptible,
        State::Stopped,
        State::Idle,
        State::Dead,
    ];

    pub fn letter(self) -> &'static str {
        match self {
            State::Runnable => "R",
            State::Sleeping => "S",
            State::Uninterruptible => "D",
            State::Stopped => "T",
            State::Idle => "I",
            State::Dead => "X",
        }
    }

    /// State by the first letter of what the kernel prints (`S`, `D|K`, `R+`, `t`, `Z`, `P` ...).
    pub fn from_letter(text: &str) -> Option<State> {
        Some(match text.as_bytes().first()? {
            b'R' => State::Runnable,
            b'S' => State::Sleeping,
            b'D' | b'K' | b'W' => State::Uninterruptible,
            b'T' | b't' => State::Stopped,
            b'I' | b'P' | b'N' => State::Idle,
            b'X' | b'x' | b'Z' => State::Dead,
            _ => return None,
        })
    }

    /// State by the kernel's own bit mask (`TASK_*` of include/linux/sched.h), as a BPF program sees it.
    /// A preempted thread stays runnable whatever its mask says; the caller knows that.
    pub fn from_task_mask(mask: u64) -> State {
        const DEAD: u64 = 0x10 | 0x20 | 0x80; // EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD
        match mask {
            m if m & DEAD != 0 => State::Dead,
            m if m & 0x1 != 0 => State::Sleeping,
            m if m & 0x2 != 0 && m & 0x400 != 0 => State::Idle, // TASK_NOLOAD
            m if m & (0x2 | 0x1000) != 0 => State::Uninterruptible, // or TASK_RTLOCK_WAIT
            m if m & (0x4 | 0x8 | 0x8000) != 0 => State::Stopped, // or TASK_FROZEN
            m if m & 0x40 != 0 => State::Idle,                  // TASK_PARKED
            _ => State::Runnable,
        }
    }

    /// State by the bit mask that the ftrace event `sched_switch` carries since kernel 4.14: the low
    /// seven bits as in the kernel, 0x80 for idle, 0x100 for preempted.
    pub fn from_ftrace_mask(mask: u64) -> State {
        match mask {
            m if m & 0x100 != 0 => State::Runnable,
            m if m & 0x80 != 0 => State::Idle,
            m => State::from_task_mask(m & 0x7f),
        }
    }

    /// Whether a thread that leaves the CPU in this state needs a wake-up before it can run again.
    pub fn blocks(self) -> bool {
        self != State::Runnable
    }
}

/// From where a wake-up came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The waker's own system call or fault.
    Task,
    /// A soft interrupt raised by the waker itself (loopback network): still the waker's doing.
    TaskSoftirq,
    /// A timer: an hrtimer or the timer wheel.
    Timer,
    /// An interrupt (or a soft interrupt that one raised) of a device.
    Interrupt,
    /// The tool that recorded it does not say.
    Unknown,
}

impl Context {
    pub const ALL: [Context; 5] = [
        Context::Task,
        Context::TaskSoftirq,
        Context::Timer,
        Context::Interrupt,
        Context::Unknown,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Context::Task => "task",
            Context::TaskSoftirq => "task-softirq",
            Context::Timer => "timer",
            Context::Interrupt => "interrupt",
            Context::Unknown => "unknown",
        }
    }
}

/// The bandwidth part of a group's `cpu.stat`, cumulative since the group was made. A field that the
/// kernel does not publish is absent, not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuStat {
    /// CPU time used, ns. Absent in version 1 where the group is not in the cpuacct hierarchy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_ns: Option<u64>,
    /// Periods in which the group wanted to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nr_periods: Option<u64>,
    /// Periods at whose end the group was throttled on some CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nr_throttled: Option<u64>,
    /// Time throttled, summed over CPUs, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// Periods that used more than the quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nr_bursts: Option<u64>,
    /// Time used above the quota, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_ns: Option<u64>,
}

/// What is known beside the events. Stored as JSON in the file's metadata.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// What made the trace: `bpf`, `cgroup-stat`, `perf-script`, `ftrace-text`, `perfetto`, `cpu-stat-csv`.
    pub source: String,
    pub clock: Clock,
    pub machine: Machine,
    pub groups: Vec<Group>,
    pub threads: Vec<Thread>,
    /// Where events are missing. Empty means that the recorder counted and lost none.
    pub losses: Vec<Loss>,
    /// Threads of the cgroup tree below this path only, if set; others appear as wakers.
    pub only_below: Option<String>,
    /// How requests are named, as given to `plimsoll record --request`.
    pub request: Option<String>,
    /// Whether the recorder noted each change of a thread's run queue ([`What::Placed`], [`What::Migrate`]): without, a
    /// thread is known to wait from when it was woken, and not where. Versions before 3 did not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub migrations: bool,
    /// Sockets of the recorded groups. Version 1 had none.
    #[serde(default)]
    pub sockets: Sockets,
    /// CPU time that the recorder's programs took for one of its events, on average, ns; at most [`RECORDER_EVENT_MAX_NS`]. 0: not
    /// known, or recording took nothing of the threads' time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recorder_event_ns: u64,
    /// Processes of which more is known, if they still ran as recording ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
}

/// More than any program of a recorder takes.
pub const RECORDER_EVENT_MAX_NS: u64 = 1_000_000;

fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

/// What is known of a process by the program that it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// [`Thread::tgid`].
    pub tgid: Tid,
    /// Version of Go that its program was built with, such as `go1.25.1`; at most [`GO_VERSION_MAX`] bytes.
    pub go: String,
}

/// Longest version of Go in a trace, in bytes.
pub const GO_VERSION_MAX: usize = 64;

/// What was recorded of sockets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sockets {
    /// Whether the recorder looked at them: without, no connection says nothing about the service.
    pub recorded: bool,
    /// Why not, or which kinds are left out, in words; absent: all kinds that the format has are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without: Option<String>,
    /// In no particular order; each event names one.
    pub connections: Vec<Connection>,
    /// Accepted connections that are encrypted and may be HTTP/2: requests that are under way at once on one of these are not told
    /// apart.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sealed: u64,
}

impl Sockets {
    /// Whether the recorder looked at sockets, but not at those of UDP.
    pub fn lack_datagrams(&self) -> bool {
        self.lack("UDP")
    }

    /// Whether the recorder looked at sockets, but could not tell streams of HTTP/2 apart.
    pub fn lack_streams(&self) -> bool {
        self.lack("HTTP/2")
    }

    fn lack(&self, kind: &str) -> bool {
        self.recorded && self.without.as_deref().is_some_and(|kinds| kinds.contains(kind))
    }
}

/// A connection of the recorded groups: their end of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// Its name in the events: of no other connection of this recording (a socket's cookie, say). Below 2^63.
    pub id: u64,
    pub protocol: Protocol,
    pub side: Side,
    /// It was there as recording began.
    pub before: bool,
    /// Port of this end; absent for Unix sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_port: Option<u16>,
    /// Port of the other end; absent for Unix sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_port: Option<u16>,
    /// Of the first recorded thread that used it; absent: none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupIx>,
    /// Its other end, where that belongs to the recorded groups, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<u64>,
    /// When its first data came after a TLS handshake, which is no request: in ns, as events' times; absent: none was seen from its
    /// beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secured_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tcp,
    Udp,
    Unix,
}

/// Which side made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Another side did; the recorded groups answer it.
    Accepted,
    /// The recorded groups did; they wait for its answers.
    Opened,
    /// It has no side that asks: a pair (`socketpair`), or not known.
    Neither,
}

/// Which clock the times are on, and the window that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// `CLOCK_MONOTONIC`, `CLOCK_BOOTTIME`, `CLOCK_REALTIME` or `unknown`.
    pub name: String,
    /// First instant that the recording covers. No event is before it.
    pub start_ns: i64,
    /// Last instant that the recording covers. No event is after it.
    pub end_ns: i64,
    /// Wall-clock time of `start_ns`, in ns since 1970, if known.
    pub wall_start_ns: Option<i64>,
}

/// The machine that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// CPUs by number, those that were on line.
    pub cpus: Vec<Cpu>,
    /// Kernel release (`uname -r`), if known.
    pub kernel: Option<String>,
    /// Ticks in a second (`CONFIG_HZ`), if known.
    pub hz: Option<u32>,
    /// Model name of the CPU, if known.
    pub model: Option<String>,
    /// Version of the hierarchy that the cpu controller is on: 1 or 2.
    pub cgroup_version: Option<u32>,
}

/// Place of a CPU in the topology: siblings share `core`, the last-level cache is `llc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    pub cpu: u32,
    pub core: Option<u32>,
    pub llc: Option<u32>,
    pub node: Option<u32>,
}

/// A cgroup, its limits when recording began and its statistics at both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Path below the hierarchy's root, with a leading `/`.
    pub path: String,
    /// Microseconds of run time in a period; absent: no limit.
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    pub burst_us: Option<u64>,
    /// `cpu.weight` (1..10000), or 0 where `cpu.idle` is 1; v1's `cpu.shares` converted as systemd does.
    pub weight: Option<u32>,
    pub stat_start: Option<CpuStat>,
    pub stat_end: Option<CpuStat>,
}

/// A thread as it was first seen. A thread id that was used twice has two entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    pub tid: Tid,
    /// Process that it belongs to; absent if the recorder does not say.
    pub tgid: Option<Tid>,
    pub comm: String,
    /// Group at `from_ns`; absent if the recorder does not say.
    pub group: Option<GroupIx>,
    /// From when this entry is about the thread id.
    pub from_ns: i64,
}

/// Events that were not recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// CPU whose events are missing; absent: not known.
    pub cpu: Option<u32>,
    /// The loss happened in this interval.
    pub from_ns: i64,
    pub to_ns: i64,
    /// How many; absent: some, number not known.
    pub count: Option<u64>,
}
