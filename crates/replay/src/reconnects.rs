// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that wait and connect anew for each request, or after some. Nothing says which of them it is that comes next: where it is
//! known that all wait ([`crate::together`]), it is taken to be the one that has waited longest since its connection ended.
use std::ops::Range;

/// A connection with requests.
pub(crate) struct Connection {
    /// From when to when it could be asked on; the least and the greatest: it was there before recording began, it was there at the end.
    pub open_ns: Range<i64>,
    /// Those that came on it, in order of time.
    pub requests: Range<usize>,
}

/// The first requests of connections, each with the last one of that which its client had before. `begin_ns`, `left_ns`: when a request
/// came, and when its answer left.
pub(crate) fn find(
    connections: &[Connection],
    begin_ns: impl Fn(usize) -> i64,
    left_ns: impl Fn(usize) -> i64,
) -> Vec<(usize, usize)> {
    let made = connections.iter().filter(|own| own.open_ns.start > i64::MIN);
    let mut made: Vec<(i64, usize)> = made
        .map(|own| (begin_ns(own.requests.start), own.requests.start))
        .collect();
    made.sort_unstable();
    let over = connections.iter().filter(|own| own.open_ns.end < i64::MAX);
    let mut over: Vec<(i64, usize)> = over
        .map(|own| (left_ns(own.requests.end - 1), own.requests.end - 1))
        .collect();
    over.sort_unstable();
    let mut over = over.into_iter().peekable();
    let of_one = |(came_ns, first): (i64, usize)| {
        let (_, last) = over.next_if(|(left_ns, _)| *left_ns <= came_ns)?;
        Some((first, last))
    };
    made.into_iter().filter_map(of_one).collect()
}
