// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bursts that serve several requests, cut into one for each.
//!
//! A thread that was throttled or busy while requests came finds several of them ready, and serves them in one burst, in an
//! order of its own: the last first, as the queue of its pool had them, or a part of each in turn, as an event loop does
//! that asks another service. In a replay in which they are not ready at once that order would make the first wait for
//! the last. So a burst is cut where it reads and where it answers. What was done for one request becomes a burst of its
//! own. They are done in the order of the recording as long as their data is there; one whose data is not is passed over.
//!
//! What leads to an answer, since the thread last read, answered or woke another, was done for that request; all else for
//! the one that was read or answered before. What a burst does before its first read or answer stays at its beginning.
//!
//! Likewise where it reads what another thread of the service has sent: that begins a burst, which the sender wakes; see
//! `exchanges.rs`. If the sender woke the thread for just that, it is there already.
//!
//! And where a thread goes on with a request that another one had worked for last: see `hand_over.rs`.
//!
//! A burst that neither reads nor answers works for what its thread has read and not answered yet, if that is one request.
use crate::exchanges::Exchange;
use crate::hand_over::{Cut, Span};
use crate::placement::Seat;
use crate::pools::Pools;
use crate::program::{actions_of, Action, Burst, BurstIx, Deed, Delayed, Part, Start, Thread, Work, NONE};
use crate::recording::{is_stuck, wakers};
use crate::request::RequestInfo;
use plimsoll_trace::{Cause, ThreadTimeline, Timeline};
use std::collections::BTreeSet;
use std::ops::Range;

struct Segment {
    /// The request; [`NONE`]: before any.
    owner: u32,
    from_ns: u64,
    to_ns: u64,
    /// The exchange without which it cannot begin; [`NONE`]: it needs none.
    needs: u32,
    actions: Vec<Action>,
}

/// What bursts are parts of.
pub(crate) struct Parts {
    /// Of each burst; none, if requests are not what sockets say.
    pub parts: Vec<Part>,
    pub pools: Pools,
    /// As in [`crate::Program`].
    pub arriving: Range<u32>,
    /// Likewise.
    pub at_ns: Vec<u64>,
}

impl Parts {
    pub fn none_of(nr_threads: usize) -> Parts {
        Parts {
            parts: Vec::new(),
            pools: Pools::none_of(nr_threads),
            arriving: 0..0,
            at_ns: Vec::new(),
        }
    }
}

/// Cuts all bursts. Indices of bursts change, in threads and wake-ups, too.
pub(crate) fn cut(
    timeline: &Timeline,
    threads: &mut [Thread],
    work: &mut Work,
    requests: &[RequestInfo],
    exchanges: &[Exchange],
) -> Parts {
    let Work {
        bursts,
        actions,
        delayed,
        seats,
    } = work;
    let firsts: Vec<u32> = threads.iter().map(|thread| thread.bursts.start).collect();
    let old = std::mem::take(bursts);
    let old_actions = std::mem::take(actions);
    let old_seats = std::mem::take(seats);
    let mut first_of: Vec<BurstIx> = Vec::with_capacity(old.len() + 1);
    let mut of: Vec<u32> = Vec::with_capacity(old.len());
    // Likewise, of those that read or answer it.
    let mut acts_for: Vec<u32> = Vec::with_capacity(old.len());
    actions.reserve(old_actions.len());
    let mut owed = Owed::default();
    // The part that begins as an exchange is read.
    let mut read_by: Vec<BurstIx> = vec![NONE; exchanges.len()];
    let mut spans: Vec<Span> = Vec::with_capacity(old.len());
    // What waits for a thread of its own program, and whether it reads what that has sent.
    let mut in_turn: Vec<(BurstIx, bool)> = Vec::new();
    for (ix, burst) in old.iter().enumerate() {
        first_of.push(bursts.len() as u32);
        let known = &threads[burst.thread as usize].bursts;
        if ix as u32 == known.start {
            owed.requests.clear();
        }
        let recorded = &timeline.threads[burst.thread as usize].bursts[ix - known.start as usize];
        let woken_ns = recorded.woken_ns;
        owed.forget(requests, (woken_ns - timeline.start_ns).max(0) as u64);
        let own = &old_actions[actions_of(&old, old_actions.len(), ix)];
        let has_set_off = |exchange: u32| {
            let exchange = &exchanges[exchange as usize];
            match &exchange.outside {
                Some(outside) => outside.woke.is_some(),
                None => has_woken(timeline, exchange, (burst.thread, ix as u32 - known.start)),
            }
        };
        let segments = segments(own, burst.work_ns, requests, |exchange| {
            (!has_set_off(exchange), exchanges[exchange as usize].request)
        });
        if burst.strict && !was_stuck(ix as u32 - known.start, &timeline.threads[burst.thread as usize]) {
            let reads_what_woke_it =
                |action: &Action| matches!(action.deed, Deed::Receive(exchange) if has_set_off(exchange));
            in_turn.push((bursts.len() as BurstIx, own.iter().any(reads_what_woke_it)));
        }
        let cut_from = acts_for.len();
        match &segments[..] {
            [] => acts_for.push(NONE),
            _ => acts_for.extend(segments.iter().map(|segment| segment.owner)),
        }
        match &acts_for[cut_from..] {
            [NONE] => of.push(owed.only()),
            owners => of.extend_from_slice(owners),
        }
        owed.follow(own);
        if segments.len() < 2 {
            bursts.push(Burst {
                actions: actions.len() as u32,
                ..*burst
            });
            seats.push(old_seats[ix]);
            actions.extend_from_slice(own);
            spans.push(Span {
                of: ix as u32,
                start_ns: recorded.woken_ns,
                end_ns: recorded.end_ns,
            });
            continue;
        }
        let last = segments.len() - 1;
        for (i, segment) in segments.iter().enumerate() {
            let first = Burst {
                work_ns: segment.to_ns - segment.from_ns,
                actions: actions.len() as u32,
                exits: burst.exits && i == last,
                ..*burst
            };
            if segment.needs != NONE && i > 0 {
                read_by[segment.needs as usize] = bursts.len() as u32;
            }
            bursts.push(match i {
                0 => first,
                _ => Burst {
                    start: match segment.needs {
                        NONE => Start::Data,
                        _ => Start::Sent,
                    },
                    at_ns: 0,
                    request: NONE,
                    strict: false,
                    ..first
                },
            });
            seats.push(if i == 0 { old_seats[ix] } else { Seat::NONE });
            let at = |ns: u64| {
                at_work(
                    &timeline.threads[burst.thread as usize],
                    recorded,
                    ns,
                    burst.work_ns,
                )
            };
            spans.push(Span {
                of: ix as u32,
                start_ns: at(segment.from_ns),
                end_ns: at(segment.to_ns),
            });
            actions.extend(segment.actions.iter().map(|action| Action {
                at_ns: action.at_ns - segment.from_ns,
                deed: action.deed,
            }));
        }
    }
    first_of.push(bursts.len() as u32);
    for later in delayed.iter_mut() {
        later.burst = first_of[later.burst as usize];
    }
    for action in actions.iter_mut() {
        match &mut action.deed {
            Deed::Wake(burst) | Deed::Fork(burst) => *burst = first_of[*burst as usize],
            Deed::Send(exchange) => {
                let exchange = *exchange as usize;
                let (after_ns, woke) = match &exchanges[exchange].outside {
                    Some(outside) => (Some(outside.after_ns), outside.woke),
                    None => (None, None),
                };
                let woke = woke.map(|(thread, burst)| threads[thread as usize].bursts.start + burst);
                let burst = woke.map_or(read_by[exchange], |burst| first_of[burst as usize]);
                action.deed = match after_ns {
                    _ if burst == NONE => continue,
                    None => Deed::Wake(burst),
                    Some(after_ns) => {
                        delayed.push(Delayed { burst, after_ns });
                        Deed::WakeLater(delayed.len() as u32 - 1)
                    }
                };
            }
            Deed::Begin(_) | Deed::Await(_) | Deed::End(_) | Deed::Receive(_) | Deed::WakeLater(_) => {}
        }
    }
    for thread in threads.iter_mut() {
        let own = &thread.bursts;
        thread.bursts = first_of[own.start as usize]..first_of[own.end as usize];
    }
    let cut = Cut {
        timeline,
        firsts: &firsts,
        first_of: &first_of,
        of: &acts_for,
        all_of: &of,
        spans: &spans,
        requests,
    };
    let moved = cut.hand_over(bursts, actions, delayed);
    let parts = parts(bursts, actions, delayed, &of, requests.len());
    let takes_turns: BTreeSet<u32> = (0..)
        .zip(&parts)
        .filter(|(ix, part)| part.before != NONE && others_between(&of, part.before, *ix))
        .map(|(ix, _)| bursts[ix].thread)
        .collect();
    for (ix, reads) in in_turn {
        let burst = &mut bursts[ix as usize];
        // Threads between which a runtime moves requests wait for whatever comes next.
        burst.strict &=
            !(takes_turns.contains(&burst.thread) && (reads || moved.threads.contains(&burst.thread)));
    }
    let pools = moved.pools;
    let arriving = cut.arrive(bursts, actions, delayed, &parts, &pools);
    let at_ns = match pools.is_empty() {
        true => Vec::new(),
        false => spans
            .iter()
            .map(|span| (span.start_ns - timeline.start_ns).max(0) as u64)
            .collect(),
    };
    Parts {
        parts,
        pools,
        arriving,
        at_ns,
    }
}

/// Whether a thread waited for storage before one of its bursts.
fn was_stuck(burst: u32, thread: &ThreadTimeline) -> bool {
    let before = burst.checked_sub(1).map(|before| &thread.bursts[before as usize]);
    before.is_some_and(|before| is_stuck(before.end))
}

/// Whether a thread worked for another request between two parts of one: an event loop, which asks another process and does not wait
/// for its answer.
fn others_between(of: &[u32], before: BurstIx, part: usize) -> bool {
    of[before as usize + 1..part]
        .iter()
        .any(|&request| request != NONE)
}

/// When a recorded burst had done so much of its work.
fn at_work(thread: &ThreadTimeline, burst: &plimsoll_trace::Burst, done_ns: u64, all_ns: u64) -> i64 {
    let runs = thread.runs_of(burst);
    let ran_ns: i64 = runs.iter().map(|run| run.end_ns - run.start_ns).sum();
    let mut left_ns = (ran_ns as f64 * done_ns as f64 / all_ns.max(1) as f64) as i64;
    for run in runs {
        let run_ns = run.end_ns - run.start_ns;
        if left_ns <= run_ns {
            return run.start_ns + left_ns;
        }
        left_ns -= run_ns;
    }
    burst.end_ns
}

fn parts(
    bursts: &[Burst],
    actions: &[Action],
    delayed: &[Delayed],
    of: &[u32],
    nr_requests: usize,
) -> Vec<Part> {
    let mut parts = vec![Part::UNKNOWN; bursts.len()];
    let mut last: Vec<BurstIx> = vec![NONE; nr_requests];
    let mut first = 0;
    for (ix, &request) in of.iter().enumerate() {
        parts[ix].request = request;
        let is_first = ix == 0 || bursts[ix - 1].thread != bursts[ix].thread;
        if is_first || !bursts[ix].start.is_part() {
            first = ix as u32;
        }
        parts[ix].first = first;
        if request != NONE {
            let last = std::mem::replace(&mut last[request as usize], ix as u32);
            if last != NONE && bursts[last as usize].thread == bursts[ix].thread {
                parts[ix].before = last;
                parts[last as usize].next = ix as u32;
            }
        }
        for action in &actions[actions_of(bursts, actions.len(), ix)] {
            if let Some(woken) = action.deed.wakes(delayed) {
                parts[woken as usize].waker = ix as u32;
            }
        }
    }
    parts
}

/// What a thread has read and not answered.
#[derive(Default)]
struct Owed {
    requests: Vec<u32>,
}

impl Owed {
    /// Another thread answered.
    fn forget(&mut self, requests: &[RequestInfo], now_ns: u64) {
        self.requests.retain(|&own| {
            let own = &requests[own as usize];
            own.begin_ns + own.latency_ns > now_ns
        });
    }

    fn only(&self) -> u32 {
        match self.requests[..] {
            [one] => one,
            _ => NONE,
        }
    }

    fn follow(&mut self, actions: &[Action]) {
        for action in actions {
            match action.deed {
                Deed::Await(request) => self.requests.push(request),
                Deed::End(request) => self.requests.retain(|&own| own != request),
                _ => {}
            }
        }
    }
}

/// What a burst does for one request after another; none, if it neither reads nor answers.
/// `exchange`: whether a burst that reads it has to wait for it, and its request.
fn segments(
    actions: &[Action],
    work_ns: u64,
    requests: &[RequestInfo],
    exchange: impl Fn(u32) -> (bool, u32),
) -> Vec<Segment> {
    let served = |action: &Action| {
        matches!(
            action.deed,
            Deed::Await(_) | Deed::End(_) | Deed::Send(_) | Deed::Receive(_)
        )
    };
    if !actions.iter().any(served) {
        return Vec::new();
    }
    let mut all = vec![Segment::new(NONE, 0)];
    for &action in actions {
        match action.deed {
            Deed::Await(request) => go_on(&mut all, request, action.at_ns),
            Deed::End(request) => answer(&mut all, request),
            Deed::Send(sent) => match exchange(sent) {
                (_, NONE) => {}
                (_, request) => answer(&mut all, request),
            },
            Deed::Receive(read) => receive(&mut all, read, exchange(read), action.at_ns),
            _ => {}
        }
        let current = all.last_mut().expect("one stands at the beginning");
        current.to_ns = action.at_ns;
        current.actions.push(action);
    }
    all.last_mut().expect("likewise").to_ns = work_ns;
    let came_ns = |segment: &Segment| requests.get(segment.owner as usize).map_or(0, |r| r.begin_ns);
    // What comes before the first request is done while that is waited for, unless another one comes sooner, or it was woken for
    // something else than what it reads first.
    let first_comes_first =
        |all: &[Segment]| all[1..].is_sorted_by(|_, later| came_ns(&all[1]) <= came_ns(later));
    if all.len() > 1 && all[0].owner == NONE && all[1].needs == NONE && first_comes_first(&all) {
        all[0].owner = all[1].owner;
    }
    let mut joined: Vec<Segment> = Vec::with_capacity(all.len());
    for segment in all {
        match joined.last_mut() {
            Some(last) if last.owner == segment.owner && segment.needs == NONE => last.append(segment),
            _ => joined.push(segment),
        }
    }
    joined
}

/// From here on the burst works for another request.
fn go_on(all: &mut Vec<Segment>, request: u32, at_ns: u64) {
    let current = all.last_mut().expect("one stands at the beginning");
    if current.owner != request {
        current.to_ns = at_ns;
        all.push(Segment::new(request, at_ns));
    }
}

/// From here on the burst works with what another thread has sent.
fn receive(all: &mut Vec<Segment>, read: u32, (waits, request): (bool, u32), at_ns: u64) {
    let current = all.last_mut().expect("one stands at the beginning");
    // For the same one as before, if it is not known for which.
    let owner = if request == NONE { current.owner } else { request };
    if waits {
        current.to_ns = at_ns;
        all.push(Segment {
            needs: read,
            ..Segment::new(owner, at_ns)
        });
    } else if owner != NONE {
        go_on(all, owner, at_ns);
    }
}

/// Whether the reading burst was woken by the sender, then or later, or by a thread that was, as a runtime's that waits for data does.
fn has_woken(timeline: &Timeline, exchange: &Exchange, reads: (u32, u32)) -> bool {
    let sent = &exchange.sent;
    wakers(timeline, reads).any(|(_, woken)| {
        matches!(woken.cause, Cause::Thread { thread, burst, at_work_ns }
            if (thread, burst) == (sent.thread, sent.burst) && sent.at_work_ns <= at_work_ns)
    })
}

/// The burst is about to answer: since when did it work for that?
fn answer(all: &mut Vec<Segment>, request: u32) {
    let current = all.last_mut().expect("one stands at the beginning");
    if current.owner == request {
        return;
    }
    if current.owner == NONE {
        current.owner = request;
        return;
    }
    let at_ns = current
        .actions
        .last()
        .map_or(current.from_ns, |action| action.at_ns);
    current.to_ns = at_ns;
    all.push(Segment::new(request, at_ns));
}

impl Segment {
    fn new(owner: u32, from_ns: u64) -> Segment {
        Segment {
            owner,
            from_ns,
            to_ns: from_ns,
            needs: NONE,
            actions: Vec::new(),
        }
    }

    /// Does the other's work after its own.
    fn append(&mut self, other: Segment) {
        let later = other.actions.into_iter().map(|action| Action {
            at_ns: action.at_ns - other.from_ns + self.to_ns,
            deed: action.deed,
        });
        self.actions.extend(later);
        self.to_ns += other.to_ns - other.from_ns;
    }
}
