// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that the service's own threads send each other: what a front asks a back, and what that answers.
//!
//! Where the reader was asleep the wake-up tells the same. But a reader that ran, or was throttled, finds the data of several
//! requests at once and leaves no wake-up: in a replay in which they do not pile up it has to be woken by each.
//!
//! Which request an exchange is for: a question is for the request that was read last in the same burst, else for the only
//! one that its thread has read and not answered; but if the answer to it is passed on to a client, for that client's. What
//! comes back on a connection is for what was asked on it. Likewise what others are asked that are not recorded: question and answer
//! are one exchange then, from who asks to who reads; see `outside.rs`.
use crate::outside::Answer;
use crate::program::{Deed, NONE};
use crate::questions::{take, Questions};
use plimsoll_trace::{ConnectionTimeline, Moment, Side, SocketOp, ThreadIx, Timeline};
use std::collections::{BTreeMap, VecDeque};

/// One piece of data, from one thread to another.
pub(crate) struct Exchange {
    pub sent_ns: i64,
    pub sent: Moment,
    pub read_ns: i64,
    pub read: Moment,
    /// What it is for; [`NONE`]: not known.
    pub request: u32,
    /// Into `Timeline::connections`: the end that reads.
    connection: usize,
    /// What lies between; `None`: nothing.
    pub outside: Option<Outside>,
}

/// Others that are not recorded.
pub(crate) struct Outside {
    /// How long after the question their answer came.
    pub after_ns: u64,
    /// The burst that it set off; `None`: none.
    pub woke: Option<(ThreadIx, u32)>,
}

/// What a thread does, in order of time.
struct Event {
    ts_ns: i64,
    by: Moment,
    /// Into the exchanges, or a request.
    deed: Deed,
}

/// `served`: of each request, when and where it is first read and when and where it is answered. `inside`: whether a thread is
/// one of the service's. `answers`: of others.
pub(crate) fn find(
    timeline: &Timeline,
    served: impl Iterator<Item = (i64, Moment, Deed)>,
    inside: impl Fn(&Moment) -> bool,
    answers: &[Answer],
) -> Vec<Exchange> {
    let asked = answers.iter().map(|answer| Exchange {
        sent_ns: answer.asked_ns,
        sent: answer.asked,
        read_ns: answer.read_ns,
        read: answer.read,
        request: NONE,
        connection: answer.connection,
        outside: Some(Outside {
            after_ns: answer.after_ns(),
            woke: answer.woke,
        }),
    });
    let mut exchanges: Vec<Exchange> = asked.collect();
    for (connection, known) in timeline.connections.iter().enumerate() {
        add(&mut exchanges, connection, known, &inside);
    }
    if exchanges.is_empty() {
        return exchanges;
    }
    let mut events: Vec<Event> = served
        .map(|(ts_ns, by, deed)| Event { ts_ns, by, deed })
        .collect();
    for (ix, own) in exchanges.iter().enumerate() {
        for (ts_ns, by, deed) in [
            (own.sent_ns, own.sent, Deed::Send(ix as u32)),
            (own.read_ns, own.read, Deed::Receive(ix as u32)),
        ] {
            events.push(Event { ts_ns, by, deed });
        }
    }
    events.sort_by_key(|e| e.ts_ns);
    say_whose(timeline, &mut exchanges, &events);
    exchanges
}

fn add(
    exchanges: &mut Vec<Exchange>,
    connection: usize,
    known: &ConnectionTimeline,
    inside: &impl Fn(&Moment) -> bool,
) {
    let mut unread: VecDeque<(i64, Moment, u32)> = VecDeque::new();
    for event in &known.events {
        match (event.op, event.by) {
            (SocketOp::Arrived, Some(by)) if inside(&by) => unread.push_back((event.ts_ns, by, event.bytes)),
            (SocketOp::Read, Some(by)) if event.bytes > 0 && inside(&by) => {
                // The last of what is read now. What is read in parts was sent once.
                let Some((sent_ns, sent)) = take(&mut unread, event.bytes) else {
                    continue;
                };
                if sent.thread != by.thread {
                    exchanges.push(Exchange {
                        sent_ns,
                        sent,
                        read_ns: event.ts_ns,
                        read: by,
                        request: NONE,
                        connection,
                        outside: None,
                    });
                }
            }
            _ => {}
        }
    }
}

/// What an exchange is in a conversation of two threads.
#[derive(Clone, Copy)]
enum Part {
    Question,
    /// To this question; `None`: that was not recorded.
    Answer(Option<u32>),
    /// A question to others, and their answer.
    Both,
}

fn parts(timeline: &Timeline, exchanges: &[Exchange], events: &[Event]) -> Vec<Part> {
    let askers = askers(timeline);
    let mut parts = vec![Part::Question; exchanges.len()];
    let mut asked: BTreeMap<usize, Questions> = BTreeMap::new();
    for event in events {
        let Deed::Send(exchange) = event.deed else {
            continue;
        };
        let own = &exchanges[exchange as usize];
        if own.outside.is_some() {
            parts[exchange as usize] = Part::Both;
            continue;
        }
        let (asker, is_question) = askers[own.connection];
        let asked = asked.entry(asker).or_default();
        match is_question {
            true => asked.ask(exchange),
            false => parts[exchange as usize] = Part::Answer(asked.answer()),
        }
    }
    parts
}

/// What each thread is at.
#[derive(Default)]
struct At {
    burst: u32,
    request: Option<u32>,
    owed: Vec<u32>,
}

impl At {
    fn current(&self, burst: u32) -> Option<u32> {
        match (self.request, &self.owed[..]) {
            (Some(request), _) if self.burst == burst => Some(request),
            (_, [only]) => Some(*only),
            _ => None,
        }
    }
}

fn say_whose(timeline: &Timeline, exchanges: &mut [Exchange], events: &[Event]) {
    let parts = parts(timeline, exchanges, events);
    let passed_on = passed_on(&parts, events);
    let mut at: BTreeMap<ThreadIx, At> = BTreeMap::new();
    for event in events {
        let own = at.entry(event.by.thread).or_default();
        let request = match event.deed {
            Deed::Await(request) => {
                own.owed.push(request);
                Some(request)
            }
            Deed::End(request) => {
                own.owed.retain(|&owed| owed != request);
                Some(request)
            }
            Deed::Send(exchange) => {
                exchanges[exchange as usize].request = match parts[exchange as usize] {
                    Part::Question | Part::Both => {
                        let known = passed_on.get(&exchange).copied();
                        known.or_else(|| own.current(event.by.burst)).unwrap_or(NONE)
                    }
                    Part::Answer(question) => question.map_or(NONE, |q| exchanges[q as usize].request),
                };
                continue;
            }
            Deed::Receive(exchange) => {
                let request = exchanges[exchange as usize].request;
                (request != NONE).then_some(request)
            }
            _ => continue,
        };
        (own.burst, own.request) = (event.by.burst, request);
    }
}

/// Of each connection's end, if it reads: the end that began the connection, and whether what is read here is its question.
fn askers(timeline: &Timeline) -> Vec<(usize, bool)> {
    let ends = (0..).zip(&timeline.connections);
    let by_id: BTreeMap<u64, usize> = ends.clone().map(|(ix, end)| (end.about.id, ix)).collect();
    ends.map(|(ix, end)| match end.about.side {
        Side::Accepted => {
            let peer = end.about.peer.and_then(|id| by_id.get(&id));
            (peer.copied().unwrap_or(ix), true)
        }
        _ => (ix, false),
    })
    .collect()
}

/// Questions whose answer is passed on to a client right after it is read: the client's request.
fn passed_on(parts: &[Part], events: &[Event]) -> BTreeMap<u32, u32> {
    let mut found = BTreeMap::new();
    let mut passing: BTreeMap<ThreadIx, Passing> = BTreeMap::new();
    for event in events {
        let own = passing.entry(event.by.thread).or_default();
        match event.deed {
            Deed::Send(_) => continue,
            Deed::End(request) if own.burst == event.by.burst => own.requests.push(request),
            Deed::Receive(exchange) => match parts[exchange as usize] {
                Part::Answer(Some(question)) => own.read(event.by.burst, question, &mut found),
                Part::Both => own.read(event.by.burst, exchange, &mut found),
                _ => own.find(&mut found),
            },
            _ => own.find(&mut found),
        }
    }
    passing.values_mut().for_each(|own| own.find(&mut found));
    found
}

/// Answers that a thread has read one after another, and the clients whom it answered then.
#[derive(Default)]
struct Passing {
    burst: u32,
    /// The questions.
    answers: Vec<u32>,
    requests: Vec<u32>,
}

impl Passing {
    fn read(&mut self, burst: u32, question: u32, found: &mut BTreeMap<u32, u32>) {
        if self.burst != burst || !self.requests.is_empty() {
            self.find(found);
        }
        self.burst = burst;
        // It may come in parts.
        if self.answers.last() != Some(&question) {
            self.answers.push(question);
        }
    }

    /// They are passed on in the order in which they were read, the last ones if some were for the service itself.
    fn find(&mut self, found: &mut BTreeMap<u32, u32>) {
        let own = self.answers.len().saturating_sub(self.requests.len());
        found.extend(self.answers.drain(..).skip(own).zip(self.requests.drain(..)));
        self.requests.clear();
    }
}
