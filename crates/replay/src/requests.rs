// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a request is: pairs of moments, found in the recording, that exist again in every replay.
//!
//! Without `--request`, what sockets say if they were recorded: see [`crate::sockets`]. Else a wake-up chain: a thread outside
//! of the planned group (a client) wakes one inside, blocks, and is woken from inside. The request lasts from the first wake-up
//! to the second. Where the client's message found its receiver still running there is no first wake-up; then it lasts from
//! the client's blocking. Without such clients, or where they are rare and their answers in doubt, arrivals from devices and
//! from threads that were not recorded begin a request, and without those, timers; it ends where the thread blocks, waits for
//! storage or for its own program not counted as the end.
use crate::groups::{is_below, Group};
use crate::marks::Mark;
use crate::pairing::{asked_on_sockets, Pairing};
use crate::program::{Burst, Start, Thread};
use crate::recording::{is_stuck, same_program};
use crate::request::{Arrival, ClassIx, Loop, RequestClass, RequestInfo};
use crate::sockets::Sockets;
use plimsoll_trace::{Cause, End, RequestSpec, ThreadIx, ThreadTimeline, Tid, Timeline};
use std::collections::BTreeMap;

pub(crate) struct Pair {
    /// `None`: not by what a thread does.
    pub begin: Option<Mark>,
    /// Its data is first read here, which waits for them: when, where.
    pub read: Option<(i64, Mark)>,
    pub end: Mark,
    pub info: RequestInfo,
}

#[derive(Default)]
pub(crate) struct Found {
    pub requests: Vec<Pair>,
    pub classes: Vec<RequestClass>,
    pub pairing: Pairing,
}

/// Kernel threads that wake others on the kernel's behalf, not as clients.
const HELPERS: [&str; 6] = ["kworker", "rcu", "jbd2", "migration", "ksoftirqd", "kcompactd"];

/// Clients whose answers are less than one of so many arrivals are passed over if these are in doubt, too: less would not
/// move a 99th percentile.
const RARE: usize = 100;

struct Finder<'a> {
    timeline: &'a Timeline,
    bursts: &'a [Burst],
    firsts: &'a [u32],
    inside: Vec<bool>,
    found: Found,
}

/// The process of a thread: its leader's id, or its own where that is not known.
fn program_of(thread: &ThreadTimeline) -> Tid {
    thread.tgid.unwrap_or(thread.tid)
}

/// Of each process that answers: its leader's name or, where that did nothing while recorded, what the names of the threads
/// that answer begin with, as those of a pool are numbered.
fn names_of<'a>(
    timeline: &Timeline,
    servers: impl Iterator<Item = &'a ThreadTimeline>,
) -> BTreeMap<Tid, String> {
    let mut names: BTreeMap<Tid, String> = BTreeMap::new();
    for server in servers {
        let name = names
            .entry(program_of(server))
            .or_insert_with(|| server.comm.clone());
        if *name != server.comm {
            let alike = name.chars().zip(server.comm.chars()).take_while(|(a, b)| a == b);
            let begins: String = alike.map(|(a, _)| a).collect();
            let begins = begins.trim_end_matches(|c: char| !c.is_alphabetic());
            if !begins.is_empty() {
                *name = begins.into();
            }
        }
    }
    for leader in timeline.threads.iter().filter(|t| program_of(t) == t.tid) {
        if let Some(name) = names.get_mut(&leader.tid) {
            name.clone_from(&leader.comm);
        }
    }
    names
}

/// What says what a request is.
pub(crate) enum By<'a> {
    Given(&'a RequestSpec),
    Sockets(&'a Sockets),
    Wakeups,
}

pub(crate) fn find(
    timeline: &Timeline,
    threads: &[Thread],
    groups: &[Group],
    bursts: &[Burst],
    firsts: &[u32],
    target: u32,
    by: By,
) -> Found {
    let inside = threads
        .iter()
        .map(|t| is_below(groups, t.group, target))
        .collect();
    let mut finder = Finder {
        timeline,
        bursts,
        firsts,
        inside,
        found: Found::default(),
    };
    match by {
        By::Sockets(sockets) => finder.sockets(sockets),
        By::Wakeups => finder.chains(),
        By::Given(request) => match request {
            RequestSpec::Uprobe { .. } | RequestSpec::Usdt { .. } => finder.markers(),
            RequestSpec::Client { .. } => finder.clients(request),
            RequestSpec::Process { .. } => finder.processes(request),
            RequestSpec::Comm { .. } | RequestSpec::Tid { .. } => finder.bursts(request),
        },
    }
    // In order of time, so that results and resampling see them as they came.
    finder.found.requests.sort_by_key(|r| r.info.begin_ns);
    finder.found
}

impl Finder<'_> {
    fn named(&self, request: &RequestSpec, thread: usize) -> bool {
        let t = &self.timeline.threads[thread];
        request.names_thread(t.tid, &t.comm)
    }

    fn burst(&self, thread: usize, burst: usize) -> &Burst {
        &self.bursts[self.firsts[thread] as usize + burst]
    }

    /// How the requests come that begin in a burst.
    fn loop_of(&self, thread: usize, burst: usize) -> Loop {
        match self.burst(thread, burst).open {
            true => Loop::Open,
            false => Loop::Closed,
        }
    }

    fn add(&mut self, name: &str, kind: Loop, begin: Mark, end: Mark) {
        let (begin_ns, end_ns) = (begin.recorded_ns(self.timeline), end.recorded_ns(self.timeline));
        if end_ns < begin_ns {
            return;
        }
        let info = RequestInfo {
            class: self.class(name, kind),
            begin_ns: (begin_ns - self.timeline.start_ns).max(0) as u64,
            latency_ns: (end_ns - begin_ns) as u64,
            held_ns: 0,
            arrival: Arrival::Marked,
        };
        self.found.requests.push(Pair {
            begin: Some(begin),
            read: None,
            end,
            info,
        });
    }

    /// Counts a request of a class, which may be new.
    fn class(&mut self, name: &str, kind: Loop) -> ClassIx {
        let class = match self.found.classes.iter().position(|c| c.name == name) {
            Some(class) => class,
            None => {
                self.found.classes.push(RequestClass {
                    name: name.into(),
                    open: 0,
                    closed: 0,
                });
                self.found.classes.len() - 1
            }
        };
        match kind {
            Loop::Open => self.found.classes[class].open += 1,
            Loop::Closed => self.found.classes[class].closed += 1,
        }
        class as ClassIx
    }

    fn sockets(&mut self, sockets: &Sockets) {
        let timeline = self.timeline;
        let since_start = |ns: i64| (ns - timeline.start_ns).max(0) as u64;
        // In order of time; each is told the new number of the one before it.
        let mut order: Vec<usize> = (0..sockets.requests.len()).collect();
        order.sort_by_key(|&i| sockets.requests[i].begin_ns);
        let mut number = vec![0; order.len()];
        (0..).zip(&order).for_each(|(new, &old)| number[old] = new);
        let servers = sockets
            .requests
            .iter()
            .map(|r| &timeline.threads[r.end.thread as usize]);
        let names = names_of(timeline, servers);
        for i in order {
            let asked = &sockets.requests[i];
            let server = &timeline.threads[asked.end.thread as usize];
            let name = &names[&program_of(server)];
            let arrival = match (asked.sender, asked.before, asked.kind) {
                (Some(_), _, _) => Arrival::Marked,
                (None, Some(before), Loop::Closed) => Arrival::After {
                    request: number[before],
                    pause_ns: (asked.begin_ns - sockets.requests[before].end_ns).max(0) as u64,
                },
                _ => Arrival::Kept,
            };
            let info = RequestInfo {
                class: self.class(name, asked.kind),
                begin_ns: since_start(asked.begin_ns),
                latency_ns: (asked.end_ns - asked.begin_ns).max(0) as u64,
                held_ns: asked.held_ns,
                arrival,
            };
            self.found.requests.push(Pair {
                begin: asked.sender.map(Mark::from),
                read: asked.read.map(|(ns, by)| (ns, by.into())),
                end: asked.end.into(),
                info,
            });
        }
    }

    fn chains(&mut self) {
        for client in 0..self.timeline.threads.len() {
            let comm = &self.timeline.threads[client].comm;
            if !self.inside[client] && !HELPERS.iter().any(|helper| comm.starts_with(helper)) {
                self.client(client, |finder, other| finder.inside[other as usize], Mark::Woken);
            }
        }
        // A few wake-ups out of the group that no request is seen of are not what it does.
        let few = self.found.requests.len() * RARE < self.arrived();
        if few && !self.found.pairing.tells_apart() {
            self.found = Found::default();
        }
        if self.found.requests.is_empty() {
            self.arrivals(|cause| matches!(cause, Cause::Interrupt | Cause::Outside { .. }));
        }
        if self.found.requests.is_empty() {
            self.arrivals(|cause| matches!(cause, Cause::Timer));
        }
    }

    /// Bursts of the group that no thread of the recording began.
    fn arrived(&self) -> usize {
        let inside = self.timeline.threads.iter().zip(&self.inside);
        let bursts = inside.filter(|(_, inside)| **inside).flat_map(|(t, _)| &t.bursts);
        let arrived = |cause| matches!(cause, Cause::Interrupt | Cause::Outside { .. } | Cause::Timer);
        bursts.filter(|burst| arrived(burst.cause)).count()
    }

    fn clients(&mut self, request: &RequestSpec) {
        for client in 0..self.timeline.threads.len() {
            if self.named(request, client) {
                let other_program = move |finder: &Self, other: ThreadIx| {
                    let threads = &finder.timeline.threads;
                    !same_program(&threads[client], &threads[other as usize])
                };
                self.client(client, other_program, Mark::Runs);
            }
        }
    }

    /// Requests of one client: it wakes a server or finds it running, blocks, and is woken by one.
    fn client(
        &mut self,
        client: usize,
        is_server: impl Fn(&Self, ThreadIx) -> bool,
        end: fn(ThreadIx, u32) -> Mark,
    ) {
        let timeline = self.timeline;
        let thread = &timeline.threads[client];
        let ix = client as ThreadIx;
        let answered = |finder: &Self, i: usize| match thread.bursts[i].cause {
            Cause::Thread { thread: server, .. } => Some(server).filter(|&s| is_server(finder, s)),
            _ => None,
        };
        let asked = |finder: &Self, i: usize| {
            let wakes = &thread.bursts[i].wakes;
            let wakes = &thread.wakes[wakes.start as usize..wakes.end as usize];
            wakes.iter().rev().find(|w| is_server(finder, w.thread))
        };
        let on_schedule = |finder: &Self, i: usize| i > 0 && finder.burst(client, i).start == Start::At;
        // A client with a schedule begins most of its requests by it. One that waits for answers may have timers as
        // well, for its own statistics: they ask for nothing.
        let requests = (1..thread.bursts.len()).filter(|&i| answered(self, i).is_some());
        let (due, all) = requests.fold((0, 0), |(due, all), i| {
            (due + u32::from(on_schedule(self, i - 1)), all + 1)
        });
        let scheduled = due * 2 > all;
        let on_sockets = asked_on_sockets(timeline, ix);
        self.found.pairing.several += on_sockets.map_or(0, |(_, beside)| beside);
        // Bursts since the answer before.
        let mut since = 0;
        for i in 1..thread.bursts.len() {
            let Some(server) = answered(self, i) else { continue };
            let asking = (since..i).filter(|&b| asked(self, b).is_some()).count();
            since = i;
            self.found.pairing.answers += 1;
            if on_sockets.is_none() {
                let due = scheduled && on_schedule(self, i - 1);
                self.found.pairing.unseen += u64::from(asking == 0 && !due);
                self.found.pairing.several += u64::from(asking > 1);
            }
            let mut from = i - 1;
            while !scheduled
                && from > 0
                && thread.bursts[from].cause == Cause::Timer
                && asked(self, from).is_none()
            {
                from -= 1;
            }
            let by_schedule = scheduled && on_schedule(self, from);
            // A thread that another one tells when to ask is as good as that one, but has no schedule of its own.
            let told = self.burst(client, from).open && self.burst(client, from).start != Start::At;
            let kind = match by_schedule || told {
                true => Loop::Open,
                false => Loop::Closed,
            };
            let begin = match asked(self, from) {
                // A client with a schedule counts from when the request was due, however late it is itself.
                _ if by_schedule => Mark::Woken(ix, from as u32),
                Some(wake) => Mark::Woken(wake.thread, wake.burst),
                None => Mark::Ends(ix, from as u32),
            };
            self.add(
                &timeline.threads[server as usize].comm,
                kind,
                begin,
                end(ix, i as u32),
            );
        }
    }

    /// Requests that begin without a client that is seen.
    fn arrivals(&mut self, is: fn(Cause) -> bool) {
        let timeline = self.timeline;
        for (ix, thread) in timeline.threads.iter().enumerate() {
            if !self.inside[ix] {
                continue;
            }
            for (i, burst) in thread.bursts.iter().enumerate() {
                let waits_for_storage = i > 0 && is_stuck(thread.bursts[i - 1].end);
                if !is(burst.cause) || waits_for_storage {
                    continue;
                }
                let mut last = i;
                while last + 1 < thread.bursts.len()
                    && self.burst(ix, last + 1).strict
                    && !is(thread.bursts[last + 1].cause)
                {
                    last += 1;
                }
                if thread.bursts[last].end == End::Cut {
                    continue;
                }
                self.add(
                    &thread.comm,
                    self.loop_of(ix, i),
                    Mark::Woken(ix as ThreadIx, i as u32),
                    Mark::Ends(ix as ThreadIx, last as u32),
                );
            }
        }
    }

    /// Each burst of the named threads.
    fn bursts(&mut self, request: &RequestSpec) {
        let timeline = self.timeline;
        for (ix, thread) in timeline.threads.iter().enumerate() {
            if !self.named(request, ix) {
                continue;
            }
            for (i, burst) in thread.bursts.iter().enumerate() {
                if burst.cause == Cause::Start || burst.end == End::Cut {
                    continue;
                }
                let kind = self.loop_of(ix, i);
                let (t, b) = (ix as ThreadIx, i as u32);
                self.add(&thread.comm, kind, Mark::Woken(t, b), Mark::Ends(t, b));
            }
        }
    }

    /// Lives of the named processes, from fork to exit.
    fn processes(&mut self, request: &RequestSpec) {
        let timeline = self.timeline;
        for (ix, thread) in timeline.threads.iter().enumerate() {
            let leader = thread.tgid.is_none_or(|tgid| tgid == thread.tid);
            let (Some(first), Some(last)) = (thread.bursts.first(), thread.bursts.last()) else {
                continue;
            };
            let whole = matches!(first.cause, Cause::Fork { .. }) && last.end == End::Exit;
            if self.named(request, ix) && leader && whole {
                let (t, b) = (ix as ThreadIx, thread.bursts.len() as u32 - 1);
                self.add(&thread.comm, Loop::Closed, Mark::Woken(t, 0), Mark::Ends(t, b));
            }
        }
    }

    /// Pairs of probes, within one thread.
    fn markers(&mut self) {
        let timeline = self.timeline;
        for (ix, thread) in timeline.threads.iter().enumerate() {
            let mut open: Option<(Loop, Mark)> = None;
            let mut burst = 0;
            for &(ts_ns, begins) in &thread.requests {
                while thread.bursts.get(burst).is_some_and(|b| b.end_ns < ts_ns) {
                    burst += 1;
                }
                let Some(within) = thread.bursts.get(burst) else {
                    break;
                };
                let runs = thread.runs_of(within);
                let work_ns = runs
                    .iter()
                    .map(|r| (ts_ns.min(r.end_ns) - r.start_ns).max(0))
                    .sum();
                let mark = Mark::Works(ix as ThreadIx, burst as u32, work_ns);
                if begins {
                    open = Some((self.loop_of(ix, burst), mark));
                } else if let Some((kind, begin)) = open.take() {
                    self.add(&thread.comm, kind, begin, mark);
                }
            }
        }
    }
}
