//! Requests: what a user waits for, as marks on bursts, so that a replay can time them again.
//!
//! By default a request is a wake-up chain: it begins when a thread is woken by something other than a
//! recorded thread (a timer, a device, an unrecorded client), includes every burst that this one causes,
//! and ends when the last of them ends. A chain that comes back to a thread it has been in (the answer
//! reaches the client) ends there, and that wake-up begins the next request.
use crate::model::GroupIx;
use crate::request::RequestSpec;
use crate::timeline::{Burst, Cause, End, ThreadIx, Timeline};

/// Where on a burst something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkAt {
    /// When it is woken.
    Wake,
    /// After this much of its work, ns.
    Work { ns: i64 },
    /// When it ends.
    End,
}

/// Beginning, or one of the ends, of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub thread: ThreadIx,
    pub burst: u32,
    pub at: MarkAt,
    pub request: u32,
    pub begins: bool,
}

/// All requests that lie wholly inside the trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// A request has one mark that begins it and one or more that end it; the last end counts.
    pub marks: Vec<Mark>,
    /// As recorded: beginning, ns after the start of the trace, and latency, ns. Indexed by request.
    pub recorded: Vec<(i64, i64)>,
}

/// Bursts that one chain may have: what is longer is no request but the machine's life.
const CHAIN_MAX: usize = 4096;

impl Requests {
    /// Finds the requests of threads whose group `wanted` accepts; `None` is a thread without a group.
    pub fn find(
        timeline: &Timeline,
        spec: Option<&RequestSpec>,
        wanted: impl Fn(Option<GroupIx>) -> bool,
    ) -> Requests {
        let mut requests = match spec {
            None => chains(timeline, &wanted),
            Some(RequestSpec::Uprobe { .. } | RequestSpec::Usdt { .. }) => probed(timeline),
            Some(spec) => of_threads(timeline, spec, &wanted),
        };
        requests.sort_by_begin(timeline);
        requests
    }

    pub fn len(&self) -> usize {
        self.recorded.len()
    }

    pub fn is_empty(&self) -> bool {
        self.recorded.is_empty()
    }

    fn add(&mut self, begin_ns: i64, end_ns: i64) -> u32 {
        self.recorded.push((begin_ns, end_ns - begin_ns));
        self.recorded.len() as u32 - 1
    }

    fn mark(&mut self, request: u32, (thread, burst): (usize, usize), at: MarkAt, begins: bool) {
        self.marks.push(Mark {
            thread: thread as ThreadIx,
            burst: burst as u32,
            at,
            request,
            begins,
        });
    }

    /// Numbers the requests by when they began.
    fn sort_by_begin(&mut self, timeline: &Timeline) {
        let mut order: Vec<u32> = (0..self.recorded.len() as u32).collect();
        order.sort_by_key(|&r| (self.recorded[r as usize], r));
        let mut number = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            number[old as usize] = new as u32;
        }
        self.recorded = order
            .iter()
            .map(|&r| self.recorded[r as usize])
            .map(|(begin, latency)| (begin - timeline.start_ns, latency))
            .collect();
        for mark in &mut self.marks {
            mark.request = number[mark.request as usize];
        }
        self.marks
            .sort_by_key(|m| (m.thread, m.burst, m.request, !m.begins));
    }
}

/// Whether both ends of a burst were seen.
fn is_whole(burst: &Burst) -> bool {
    burst.cause != Cause::Start && burst.end != End::Cut
}

/// Each burst of the named threads.
fn of_threads(timeline: &Timeline, spec: &RequestSpec, wanted: &dyn Fn(Option<GroupIx>) -> bool) -> Requests {
    let mut requests = Requests::default();
    for (t, thread) in timeline.threads.iter().enumerate() {
        if !spec.names_thread(thread.tid, &thread.comm) {
            continue;
        }
        for (b, burst) in thread.bursts.iter().enumerate() {
            if is_whole(burst) && wanted(burst.group) {
                let request = requests.add(burst.woken_ns, burst.end_ns);
                requests.mark(request, (t, b), MarkAt::Wake, true);
                requests.mark(request, (t, b), MarkAt::End, false);
            }
        }
    }
    requests
}

/// From a probe that begins to the next that ends in the same thread.
fn probed(timeline: &Timeline) -> Requests {
    let mut requests = Requests::default();
    for (t, thread) in timeline.threads.iter().enumerate() {
        let mut begun: Option<(i64, (usize, i64))> = None;
        for &(ts_ns, begins) in &thread.requests {
            let Some(place) = timeline.work_at(t, ts_ns) else {
                continue;
            };
            match (begins, begun) {
                (true, _) => begun = Some((ts_ns, place)),
                (false, Some((begin_ns, (burst, work_ns)))) => {
                    let request = requests.add(begin_ns, ts_ns);
                    requests.mark(request, (t, burst), MarkAt::Work { ns: work_ns }, true);
                    requests.mark(request, (t, place.0), MarkAt::Work { ns: place.1 }, false);
                    begun = None;
                }
                (false, None) => {} // it had begun before the recording
            }
        }
    }
    requests
}

impl Timeline {
    /// The burst that a thread was in at `ts_ns`, and its work until then.
    fn work_at(&self, thread: usize, ts_ns: i64) -> Option<(usize, i64)> {
        let thread = &self.threads[thread];
        let burst = thread
            .bursts
            .partition_point(|b| b.woken_ns <= ts_ns)
            .checked_sub(1)?;
        let runs = &thread.bursts[burst].runs;
        let work = thread.runs[runs.start as usize..runs.end as usize]
            .iter()
            .map(|r| r.end_ns.min(ts_ns) - r.start_ns.min(ts_ns))
            .sum();
        Some((burst, work))
    }
}

/// A chain under construction.
struct Chain {
    bursts: Vec<(usize, usize)>,
    whole: bool,
    wanted: bool,
}

fn chains(timeline: &Timeline, wanted: &dyn Fn(Option<GroupIx>) -> bool) -> Requests {
    // All bursts in order of their wake-up, so that causes come before effects.
    let mut order: Vec<(i64, usize, usize)> = Vec::new();
    for (t, thread) in timeline.threads.iter().enumerate() {
        order.extend(
            thread
                .bursts
                .iter()
                .enumerate()
                .map(|(b, burst)| (burst.woken_ns, t, b)),
        );
    }
    order.sort_unstable();
    let mut chains: Vec<Chain> = Vec::new();
    let mut chain_of: Vec<Vec<u32>> = timeline
        .threads
        .iter()
        .map(|t| vec![u32::MAX; t.bursts.len()])
        .collect();
    for (_, t, b) in order {
        let burst = &timeline.threads[t].bursts[b];
        let parent = match burst.cause {
            Cause::Thread { thread, burst, .. } | Cause::Fork { thread, burst, .. } => {
                let chain = chain_of[thread as usize][burst as usize];
                chains
                    .get(chain as usize)
                    .is_some_and(|c| c.accepts(t))
                    .then_some(chain)
            }
            _ => None,
        };
        let chain = parent.unwrap_or_else(|| {
            chains.push(Chain {
                bursts: Vec::new(),
                whole: true,
                wanted: wanted(burst.group),
            });
            chains.len() as u32 - 1
        });
        chain_of[t][b] = chain;
        let chain = &mut chains[chain as usize];
        chain.whole &= is_whole(burst);
        chain.bursts.push((t, b));
    }
    let mut requests = Requests::default();
    for chain in chains.iter().filter(|c| c.whole && c.wanted) {
        let burst = |&(t, b): &(usize, usize)| &timeline.threads[t].bursts[b];
        let begin_ns = burst(&chain.bursts[0]).woken_ns;
        let end_ns = chain
            .bursts
            .iter()
            .map(|b| burst(b).end_ns)
            .max()
            .unwrap_or(begin_ns);
        let request = requests.add(begin_ns, end_ns);
        requests.mark(request, chain.bursts[0], MarkAt::Wake, true);
        for &burst in &chain.bursts {
            requests.mark(request, burst, MarkAt::End, false);
        }
    }
    requests
}

impl Chain {
    /// Whether a burst of this thread goes on with the chain.
    fn accepts(&self, thread: usize) -> bool {
        self.bursts.len() < CHAIN_MAX && !self.bursts.iter().any(|&(t, _)| t == thread)
    }
}
