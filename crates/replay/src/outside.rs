// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the service asks of others that are not recorded, a database or another service: each answer comes as long after its
//! question as in the recording.
//!
//! If answers kept the times of the recording, one would come before its question where a limit holds that up, and as late as
//! ever where none does so any more.
//!
//! A question is what is written on a connection that the service opened, an answer what comes back. They come in the order of the
//! questions. Where many questions wait on one connection at a time that order is not known to hold, as with streams of HTTP/2:
//! what comes on such a connection keeps its time, as does what nobody asked for.
use crate::questions::{take, Questions};
use crate::recording::woken_for;
use plimsoll_trace::{ConnectionTimeline, Moment, Side, SocketOp, ThreadIx, Timeline};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Of a hundred answers so many may come while a later question waits, too.
const OVERLAPPING_PERCENT_MAX: usize = 10;

/// What comes back for one question, as far as it is read at once.
pub(crate) struct Answer {
    pub asked_ns: i64,
    pub asked: Moment,
    pub came_ns: i64,
    pub read_ns: i64,
    pub read: Moment,
    /// Into `Timeline::connections`.
    pub connection: usize,
    /// The burst that it set off, of the thread that reads it or of one that hands it on; `None`: that thread was not asleep.
    pub woke: Option<(ThreadIx, u32)>,
    /// From its question on its thread slept, and did nothing but read earlier parts of the answer.
    pub is_waited_for: bool,
}

impl Answer {
    /// How long after its question it came.
    pub fn after_ns(&self) -> u64 {
        (self.came_ns - self.asked_ns).max(0) as u64
    }
}

/// Bursts that answers set off.
pub(crate) type Woken<'a> = BTreeMap<(ThreadIx, u32), &'a Answer>;

/// In order of time. `inside`: whether a thread is one of the service's.
pub(crate) fn find(timeline: &Timeline, inside: impl Fn(&Moment) -> bool) -> Vec<Answer> {
    let mut answers: Vec<Answer> = (0..)
        .zip(&timeline.connections)
        .filter(|(_, known)| known.about.side == Side::Opened)
        .flat_map(|(connection, known)| on(timeline, connection, known, &inside))
        .collect();
    answers.sort_by_key(|answer| answer.came_ns);
    let mut woken = BTreeSet::new();
    // Bursts that wait for an answer, each with its question.
    let mut waiting: BTreeSet<(ThreadIx, u32, i64)> = BTreeSet::new();
    for answer in &mut answers {
        // The first that came set it off.
        answer.woke = answer.woke.filter(|burst| woken.insert(*burst));
        let (asked, asked_ns) = (answer.asked, answer.asked_ns);
        waiting.insert((asked.thread, asked.burst, asked_ns));
        if let Some((thread, burst)) = answer.woke {
            let waited = burst.checked_sub(1).map(|before| (thread, before, asked_ns));
            answer.is_waited_for = waited.is_some_and(|waited| waiting.contains(&waited));
            if answer.is_waited_for {
                waiting.insert((thread, burst, asked_ns));
            }
        }
    }
    answers
}

fn on(
    timeline: &Timeline,
    connection: usize,
    known: &ConnectionTimeline,
    inside: &impl Fn(&Moment) -> bool,
) -> Vec<Answer> {
    let mut asked: Vec<(i64, Moment)> = Vec::new();
    let mut open = Questions::default();
    let mut unread: VecDeque<(i64, Option<u32>, u32)> = VecDeque::new();
    let (mut came, mut overlapping) = (0, 0);
    let mut answers = Vec::new();
    for event in known.events.iter().filter(|event| event.bytes > 0) {
        match (event.op, event.by) {
            (SocketOp::Wrote, Some(by)) if inside(&by) => {
                let burst = (by.thread, by.burst);
                match asked.last_mut() {
                    // Written in parts.
                    Some(last) if open.waiting() > 0 && (last.1.thread, last.1.burst) == burst => {
                        *last = (event.ts_ns, by)
                    }
                    _ => {
                        open.ask(asked.len() as u32);
                        asked.push((event.ts_ns, by));
                    }
                }
            }
            // Not sent by a recorded thread: that would do so in a replay, too.
            (SocketOp::Arrived, None) => {
                overlapping += usize::from(open.waiting() > 1);
                came += 1;
                unread.push_back((event.ts_ns, open.answer(), event.bytes));
            }
            (SocketOp::Read, Some(by)) if inside(&by) => {
                let first_ns = unread.front().map(|first| first.0);
                let Some((came_ns, Some(question))) = take(&mut unread, event.bytes) else {
                    continue;
                };
                let (asked_ns, asked) = asked[question as usize];
                // What came before the question is left of an earlier answer.
                let since_ns = first_ns.unwrap_or(came_ns).max(asked_ns);
                answers.push(Answer {
                    asked_ns,
                    asked,
                    came_ns,
                    read_ns: event.ts_ns,
                    read: by,
                    connection,
                    woke: woken_for(timeline, (by.thread, by.burst), since_ns),
                    is_waited_for: false,
                });
            }
            _ => {}
        }
    }
    if overlapping * 100 > came * OVERLAPPING_PERCENT_MAX {
        answers.clear();
    }
    answers
}
