// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a trace to what each thread does in a replay: the trace, cut at its blocking points, with causes instead of times.
//!
//! A thread does its bursts in the order in which their causes arrive, not in that of the recording: a server that got
//! request A before request B may get them the other way round under other limits. Two things keep their place. A
//! burst that continues what the thread was doing (woken by a thread of its own program, as by a lock, or from an
//! uninterruptible wait, as for storage) is waited for with nothing in between but bursts that came before it in the
//! recording. And the last burst, which exits, comes last.
//!
//! No replay can hang: of all bursts not done, take the earliest of the recording. What causes it came earlier, so it
//! is done; its thread either waits for anything or for a later burst, and so may do it.
use crate::arrivals::{pacing, timer_pacing, Arrival, Pacing};
use crate::clients::Clients;
use crate::cost::stretches;
use crate::error::SettingsError;
use crate::exchanges;
use crate::groups::{counts, depth, find, groups, indices, is_below, normal, upwards, Group};
use crate::loops::{hand_on, open_work_ns};
use crate::machine::{idle_charged_ns, sibling_speeds, Dense};
use crate::marks::{Mark, Marks};
use crate::outside::{self, Woken};
use crate::phase;
use crate::placement::placement;
use crate::program::{Burst, Deed, Delayed, Program, Start, Thread, Work, NONE};
use crate::recorder;
use crate::recording::{firsts, is_from_outside, is_stuck, runs_by_cpu, same_program, woken_for};
use crate::request::{last_end_ns, Arrival as Begins, Loop, RequestInfo};
use crate::requests::{self, By};
use crate::rivals;
use crate::segments::{self, Parts};
use crate::sockets::{self, Sockets};
use plimsoll_sim::Mainline;
use plimsoll_trace::{Cause, End, Header, Moment, Process, RequestSpec, ThreadTimeline, Timeline};
use std::collections::BTreeSet;

impl Program {
    /// Compiles a timeline. `target`: path of the group that is planned for; `None`: the lowest one, not the
    /// root, that holds all groups whose threads were busy, such as a pod, else the one with the most CPU time. `request`:
    /// what a request is; `None`: a wake-up chain through that group.
    pub fn build(
        header: &Header,
        timeline: &Timeline,
        target: Option<&str>,
        request: Option<&RequestSpec>,
        smt_percent: u32,
    ) -> Result<Program, SettingsError> {
        let dense = Dense::of(header, timeline);
        let (header, timeline) = (&*dense.header, &*dense.timeline);
        let mut groups = groups(header);
        let group_of = indices(header, &groups);
        let firsts = firsts(timeline);
        let by_cpu = runs_by_cpu(timeline);
        let speeds = sibling_speeds(header, timeline, &by_cpu, smt_percent);
        let places = placement(timeline, &by_cpu, &group_of);
        let recorder_ns = recorder::taken_ns(timeline, header.recorder_event_ns);
        let mut threads = Vec::with_capacity(timeline.threads.len());
        let mut bursts = Vec::with_capacity(*firsts.last().unwrap_or(&0) as usize);
        let mut pacings = Vec::new();
        for (ix, thread) in timeline.threads.iter().enumerate() {
            let group = main_group(thread, &group_of);
            let work_ns: u64 = thread.bursts.iter().map(|b| b.work_ns.max(0) as u64).sum();
            upwards(&mut groups, group, |above| above.work_ns += work_ns);
            threads.push(Thread {
                name: format!("{}/{}", thread.comm, thread.tid),
                group,
                pinned: pinned(thread, &groups[group as usize], &dense),
                place: places.threads[ix],
                bursts: firsts[ix]..firsts[ix + 1],
                work_ns,
                recorder_ns: recorder_ns[ix],
            });
        }
        let target = find_target(&groups, &threads, target)?;
        let sockets = match request {
            None => sockets::find(timeline, &threads, &groups, target),
            Some(_) => Sockets::default(),
        };
        let by_sockets = !sockets.requests.is_empty();
        // What they set off is woken by parts of requests that sockets tell of.
        let answers = match by_sockets {
            true => outside::find(timeline, |moment| {
                is_below(&groups, threads[moment.thread as usize].group, target)
            }),
            false => Vec::new(),
        };
        let woken = answers.iter().filter_map(|answer| Some((answer.woke?, answer)));
        let woken: Woken = woken.collect();
        for (ix, speeds) in speeds.iter().enumerate() {
            add_bursts(timeline, ix, speeds, &woken, &mut bursts, &mut pacings);
        }
        let inside = |process: &Process| {
            let mut own = threads.iter().zip(&timeline.threads);
            own.any(|(t, known)| known.tgid == Some(process.tgid) && is_below(&groups, t.group, target))
        };
        let go: BTreeSet<&String> = header
            .processes
            .iter()
            .filter(|p| inside(p))
            .map(|p| &p.go)
            .collect();
        let go_versions = go.into_iter().cloned().collect();
        keep_arrivals(timeline, &sockets, &firsts, &mut bursts);
        hand_on(timeline, &firsts, &woken, &mut bursts);
        let by = match request {
            Some(request) => By::Given(request),
            None if by_sockets => By::Sockets(&sockets),
            None => By::Wakeups,
        };
        let mut found = requests::find(timeline, &threads, &groups, &bursts, &firsts, target, by);
        if !found.pairing.tells_apart() {
            found.requests.clear();
            found.classes.clear();
        }
        let mut marks = Marks::new(timeline, &firsts);
        for (ix, request) in found.requests.iter().enumerate() {
            if let Some(begin) = request.begin {
                marks.begin(ix as u32, begin);
            }
            match request.read {
                Some((ns, read)) if request.info.arrival != Begins::Marked => {
                    marks.socket(read, ns, Deed::Await(ix as u32))
                }
                _ => {}
            }
            match by_sockets {
                true => {
                    let ns = request.info.begin_ns + request.info.latency_ns;
                    marks.socket(request.end, timeline.start_ns + ns as i64, Deed::End(ix as u32));
                }
                false => marks.end(ix as u32, request.end),
            }
        }
        let mut delayed: Vec<Delayed> = Vec::new();
        for (request, next) in follow_answers(timeline, &found.requests, &firsts, &woken) {
            let burst = &mut bursts[next.burst as usize];
            (burst.start, burst.strict) = (Start::Message, false);
            let before = &found.requests[request as usize];
            let ns = before.info.begin_ns + before.info.latency_ns;
            let deed = Deed::WakeLater(delayed.len() as u32);
            marks.socket(before.end, timeline.start_ns + ns as i64, deed);
            delayed.push(next);
        }
        let exchanges = match by_sockets {
            true => exchanges::find(
                timeline,
                served(timeline, &found.requests),
                |moment| is_below(&groups, threads[moment.thread as usize].group, target),
                &answers,
            ),
            false => Vec::new(),
        };
        for (ix, exchange) in exchanges.iter().enumerate() {
            marks.socket(exchange.sent.into(), exchange.sent_ns, Deed::Send(ix as u32));
            marks.socket(exchange.read.into(), exchange.read_ns, Deed::Receive(ix as u32));
        }
        for (burst, request) in marks.take_due() {
            bursts[burst as usize].request = request;
        }
        let actions = marks.into_actions(&mut bursts, &speeds);
        let requests: Vec<RequestInfo> = found.requests.iter().map(|r| r.info).collect();
        if let Some(last_ns) = last_end_ns(found.requests.iter().map(|r| &r.info)) {
            let from_ns = timeline.start_ns + last_ns as i64;
            for (thread, own) in timeline.threads.iter().zip(&threads) {
                let late = thread.runs.iter().map(|r| r.end_ns - r.start_ns.max(from_ns));
                let late_ns: i64 = late.filter(|ns| *ns > 0).sum();
                upwards(&mut groups, own.group, |above| {
                    above.late_work_ns += late_ns as u64
                });
            }
        }
        // Runs are switch to switch, work is what the kernel charged: never more late than at all.
        groups
            .iter_mut()
            .for_each(|g| g.late_work_ns = g.late_work_ns.min(g.work_ns));
        for ix in 0..groups.len() {
            if groups[ix].quota_us.is_some() {
                let member = |thread: usize| is_below(&groups, threads[thread].group, ix as u32);
                let period_ns = groups[ix].period_us * 1000;
                let periods = (timeline.end_ns - timeline.start_ns).max(0) as f64 / period_ns.max(1) as f64;
                let throttled = groups[ix].throttled.zip(groups[ix].throttled_ns);
                let throttled = throttled.map(|(share, ns)| phase::Throttled {
                    periods: (share * periods).round() as u64,
                    ns,
                });
                let stretches = phase::standstills(timeline, member);
                let phase_ns = phase::of_periods(&stretches, period_ns, throttled).or_else(|| {
                    let kernel = throttled.filter(|_| groups[ix].burst_us == 0)?;
                    let of_work_ns = groups[ix].quota_us? as f64 * 1000.0 / groups[ix].charged();
                    phase::of_full_periods(timeline, period_ns, of_work_ns as u64, kernel.periods, member)
                });
                let first_ns =
                    phase_ns.and_then(|at| phase::left_at_start(timeline, &stretches, period_ns, at, member));
                (groups[ix].phase_ns, groups[ix].first_ns) = (phase_ns, first_ns);
            }
        }
        let idle_charged_ns = idle_charged_ns(&by_cpu, &groups[target as usize], |thread: u32| {
            is_below(&groups, threads[thread as usize].group, target)
        });
        let (rivals, clients) = rivals::find(
            timeline,
            &by_cpu,
            &groups,
            &group_of,
            &sent(timeline, &bursts, &firsts, &found.requests),
            1_000_000_000 / u64::from(header.machine.hz.unwrap_or(250).max(1)),
        );
        let only_rivals = rivals::only_rivals(&groups, &rivals, threads.iter().map(|t| t.group));
        let open_work_ns = open_work_ns(timeline, &threads, &groups, &bursts, target);
        let stretches = stretches(timeline, &threads, &groups, target, &found.requests);
        let mut answered_ns: Vec<u64> = answers.iter().map(outside::Answer::after_ns).collect();
        answered_ns.sort_unstable();
        let mut work = Work {
            bursts,
            actions,
            delayed,
            seats: places.seats,
        };
        let cut = match by_sockets {
            true => segments::cut(timeline, &mut threads, &mut work, &requests, &exchanges),
            false => Parts::none_of(threads.len()),
        };
        let Parts {
            parts,
            pools,
            arriving,
            at_ns,
        } = cut;
        let Work {
            bursts,
            actions,
            delayed,
            seats,
        } = work;
        let mut program = Program {
            threads,
            groups,
            classes: found.classes,
            target,
            others_ns: timeline.others.iter().map(|run| run.run_ns).sum(),
            sockets: by_sockets.then_some(sockets.counts),
            answered_ns,
            pairing: found.pairing,
            go_versions,
            open_work_ns,
            duration_ns: (timeline.end_ns - timeline.start_ns).max(0) as u64,
            clock_start_ns: timeline.start_ns.max(0) as u64,
            wall_start_ns: header.clock.wall_start_ns,
            pacings,
            switches: timeline.quality.switches,
            stretches,
            seeks_idle_from: places.seeks_idle_from.unwrap_or(0),
            idle_charged_ns,
            spares_own_group: places.spares_own_group,
            kernel: header
                .machine
                .kernel
                .as_deref()
                .map_or(Mainline::UNKNOWN, Mainline::of),
            job: matches!(request, Some(RequestSpec::Process { .. })),
            bursts,
            parts,
            seats,
            actions,
            delayed,
            arriving,
            pools,
            at_ns,
            clients: Clients::find(clients, &requests),
            requests,
            rivals,
            only_rivals,
            cut_sizes: Vec::new(),
        };
        program.cut_sizes = program.sizes_of_cuts();
        Ok(program)
    }
}

/// The group that is planned for: see [`crate::Program::build`].
pub(crate) fn find_target(
    groups: &[Group],
    threads: &[Thread],
    path: Option<&str>,
) -> Result<u32, SettingsError> {
    match path {
        Some(path) => {
            let path = normal(path);
            find(groups, &path).ok_or_else(|| SettingsError {
                what: "group".into(),
                value: path,
                allowed: groups
                    .iter()
                    .map(|g| g.path.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
        }
        None => {
            let mut own_work = vec![0; groups.len()];
            for thread in threads {
                own_work[thread.group as usize] += thread.work_ns;
            }
            let all: u64 = own_work.iter().sum();
            let busy: Vec<u32> = (0..groups.len() as u32)
                .filter(|&ix| counts(own_work[ix as usize], all))
                .collect();
            let holds_all = |ix: &u32| busy.iter().all(|&group| is_below(groups, group, *ix));
            // Of those that hold all, the lowest.
            let pod = (1..groups.len() as u32)
                .filter(holds_all)
                .max_by_key(|&ix| depth(groups, ix));
            let most = || (1..groups.len()).max_by_key(|&ix| (own_work[ix], std::cmp::Reverse(ix)));
            Ok(pod.or_else(|| Some(most()? as u32)).unwrap_or(0))
        }
    }
}

/// When and where each request's data is first read, and where it is answered.
fn served<'a>(
    timeline: &'a Timeline,
    requests: &'a [requests::Pair],
) -> impl Iterator<Item = (i64, Moment, Deed)> + 'a {
    let moment = |mark: Mark| match mark {
        Mark::Works(thread, burst, at_work_ns) => Some(Moment {
            thread,
            burst,
            at_work_ns,
        }),
        _ => None,
    };
    (0..).zip(requests).flat_map(move |(ix, request)| {
        let read = request
            .read
            .and_then(|(ns, mark)| Some((ns, moment(mark)?, Deed::Await(ix))));
        let end_ns = timeline.start_ns + (request.info.begin_ns + request.info.latency_ns) as i64;
        let end = moment(request.end).map(|by| (end_ns, by, Deed::End(ix)));
        read.into_iter().chain(end)
    })
}

/// When clients of closed loops that are not recorded sent, ascending, and which request, if that is known.
fn sent(
    timeline: &Timeline,
    bursts: &[Burst],
    firsts: &[u32],
    requests: &[requests::Pair],
) -> Vec<(i64, Option<u32>)> {
    let mut sent = Vec::new();
    for (thread, first) in timeline.threads.iter().zip(firsts) {
        for (known, own) in thread.bursts.iter().zip(&bursts[*first as usize..]) {
            if is_from_outside(known.cause) && !own.open && own.start != Start::Message {
                sent.push((known.woken_ns, None));
            }
        }
    }
    let closed = (0..).zip(requests).map(|(ix, r)| (r.info, ix));
    let closed = closed.filter(|(r, _)| matches!(r.arrival, Begins::After { .. }));
    sent.extend(closed.map(|(r, ix)| (timeline.start_ns + r.begin_ns as i64, Some(ix))));
    sent.sort_unstable();
    sent
}

/// The group in which a thread did most of its work.
fn main_group(thread: &ThreadTimeline, group_of: &[u32]) -> u32 {
    let mut work: Vec<(u32, i64)> = Vec::new();
    for burst in &thread.bursts {
        let Some(group) = burst.group else { continue };
        match work.iter_mut().find(|(g, _)| *g == group) {
            Some((_, sum)) => *sum += burst.work_ns + 1,
            None => work.push((group, burst.work_ns + 1)),
        }
    }
    work.iter()
        .max_by_key(|(group, sum)| (*sum, std::cmp::Reverse(*group)))
        .and_then(|(group, _)| group_of.get(*group as usize))
        .copied()
        .unwrap_or(0)
}

/// Threads of the kernel that belong to one CPU have a name that ends in `/CPU` or holds `/CPU:`.
fn pinned(thread: &ThreadTimeline, group: &Group, dense: &Dense) -> Option<u32> {
    let (_, rest) = thread.comm.split_once('/')?;
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let cpu = dense.place(number.parse().ok()?)?;
    (group.path == "/" && thread.runs.iter().all(|r| r.cpu == cpu)).then_some(cpu)
}

fn add_bursts(
    timeline: &Timeline,
    ix: usize,
    speeds: &[f32],
    woken: &Woken,
    out: &mut Vec<Burst>,
    pacings: &mut Vec<(String, &'static str, Pacing, u64)>,
) {
    let thread = &timeline.threads[ix];
    // Arrivals from outside that tell nothing keep their times: a client that does not slow down is the harder case
    // for a limit.
    let answer = |i: usize| woken.get(&(ix as u32, i as u32)).copied();
    let by_timer = arrivals_of(thread, |_, cause| matches!(cause, Cause::Timer));
    let by_others = arrivals_of(thread, |i, cause| is_from_outside(cause) && answer(i).is_none());
    let timers = timer_pacing(&by_timer);
    let devices = pacing(&by_others, Pacing::Open);
    for (kind, found, pacing) in [("timer", by_timer, timers), ("outside", by_others, devices)] {
        if !found.is_empty() {
            pacings.push((thread.comm.clone(), kind, pacing, found.len() as u64 + 1));
        }
    }
    for (i, burst) in thread.bursts.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &thread.bursts[i]);
        let stuck = before.is_some_and(|b| is_stuck(b.end));
        let since_start = (burst.woken_ns - timeline.start_ns).max(0) as u64;
        let after = before.map(|b| (burst.woken_ns - b.end_ns).max(0) as u64);
        let timed = |pacing: Pacing| match (after, pacing) {
            (Some(gap_ns), _) if stuck => (Start::After, gap_ns),
            (Some(gap_ns), Pacing::Closed) => (Start::After, gap_ns),
            _ => (Start::At, since_start),
        };
        let (start, at_ns) = match burst.cause {
            _ if answer(i).is_some() => (Start::Message, 0),
            Cause::Start => (Start::At, since_start),
            Cause::Thread { .. } => (Start::Message, 0),
            Cause::Fork { .. } => (Start::Fork, 0),
            Cause::Timer => timed(timers),
            Cause::Outside { .. } | Cause::Interrupt => timed(devices),
            Cause::Unseen => timed(Pacing::Closed),
        };
        let pacing = match burst.cause {
            Cause::Timer => timers,
            Cause::Outside { .. } | Cause::Interrupt => devices,
            _ => Pacing::Closed,
        };
        let waits = match burst.cause {
            _ if answer(i).is_some() => answer(i).is_some_and(|answer| answer.is_waited_for),
            Cause::Thread { thread: waker, .. } => same_program(thread, &timeline.threads[waker as usize]),
            _ => false,
        };
        out.push(Burst {
            work_ns: (burst.work_ns.max(0) as f64 * f64::from(speeds[i])) as u64,
            at_ns,
            actions: 0,
            thread: ix as u32,
            request: NONE,
            start,
            strict: before.is_some() && (stuck || waits) && start != Start::At,
            open: start == Start::At && pacing == Pacing::Open,
            exits: burst.end == End::Exit,
        });
    }
}

/// What reads data of requests that keep their times is open work, and begins at its time if they began it.
fn keep_arrivals(timeline: &Timeline, sockets: &Sockets, firsts: &[u32], bursts: &mut [Burst]) {
    // Of each burst: its open requests less the others, and when the data of the first of them arrived.
    let mut open = std::collections::BTreeMap::new();
    for asked in &sockets.requests {
        let Some((_, by)) = asked.read else { continue };
        let reads = (by.thread, by.burst);
        let woken = woken_for(timeline, reads, asked.begin_ns).filter(|woken| *woken != reads);
        for (thread, burst) in std::iter::once(reads).chain(woken) {
            let burst = (firsts[thread as usize] + burst) as usize;
            let (more, first_ns) = open.entry(burst).or_insert((0i64, i64::MAX));
            match asked.kind {
                Loop::Open => (*more, *first_ns) = (*more + 1, asked.begin_ns.min(*first_ns)),
                Loop::Closed => *more -= 1,
            }
        }
    }
    for (ix, (open, first_ns)) in open {
        let burst = &mut bursts[ix];
        let thread = &timeline.threads[burst.thread as usize];
        let known = &thread.bursts[ix - firsts[burst.thread as usize] as usize];
        burst.open = open > 0;
        if burst.open && is_from_outside(known.cause) && burst.start != Start::Message {
            // Data that was there before set it off, whatever woke a thread that had no time for them.
            burst.start = Start::At;
            burst.at_ns = (known.woken_ns.min(first_ns) - timeline.start_ns).max(0) as u64;
            burst.strict = false;
        }
    }
}

/// What a client that waits for its answers sets off as it asks again: that request, and the burst with the time between.
fn follow_answers(
    timeline: &Timeline,
    requests: &[requests::Pair],
    firsts: &[u32],
    woken: &Woken,
) -> Vec<(u32, Delayed)> {
    let mut taken: BTreeSet<(u32, u32)> = woken.keys().copied().collect();
    let mut found = Vec::new();
    for own in requests {
        let Begins::After { request, pause_ns } = own.info.arrival else {
            continue;
        };
        let Some((_, Mark::Works(thread, burst, _))) = own.read else {
            continue;
        };
        let begin_ns = timeline.start_ns + own.info.begin_ns as i64;
        let woken = woken_for(timeline, (thread, burst), begin_ns);
        if let Some((thread, burst)) = woken.filter(|woken| taken.insert(*woken)) {
            let next = Delayed {
                burst: firsts[thread as usize] + burst,
                after_ns: pause_ns,
            };
            found.push((request, next));
        }
    }
    found
}

/// Pairs of neighbouring wake-ups of one kind; waits for storage are left out.
fn arrivals_of(thread: &ThreadTimeline, is: impl Fn(usize, Cause) -> bool) -> Vec<Arrival> {
    let mut found = Vec::new();
    let mut last: Option<i64> = None;
    for (i, burst) in thread.bursts.iter().enumerate().skip(1) {
        let before = &thread.bursts[i - 1];
        if !is(i, burst.cause) || is_stuck(before.end) {
            continue;
        }
        if let Some(woken_ns) = last {
            found.push(Arrival {
                woken_ns,
                idle_ns: before.end_ns,
                next_ns: burst.woken_ns,
            });
        }
        last = Some(burst.woken_ns);
    }
    found
}
