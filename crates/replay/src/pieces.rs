// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that found several requests ready, because it was throttled or busy while they came, served them in one burst
//! and in an order of its own: the last first, or as the queue of its pool had them. In a replay in which they are not
//! ready at once that order would make the first wait for the last. So each burst serves them in the order in which they
//! came.
//!
//! A piece is what a burst does from where it reads one request's data to where it reads the next one's. Pieces stay
//! together where one answers what another has read.
use crate::program::{Action, Deed};
use crate::requests::RequestInfo;

struct Piece {
    actions: Vec<Action>,
    from_ns: u64,
    to_ns: u64,
    /// When the data of the first request came that is read in it.
    came_ns: u64,
}

/// Sorts the pieces of one burst of so much work. What it does before it reads any request stays where it is.
pub(crate) fn in_order_of_arrival(actions: &mut [Action], work_ns: u64, requests: &[RequestInfo]) {
    let mut pieces: Vec<Piece> = Vec::new();
    let first = actions.iter().position(|a| matches!(a.deed, Deed::Await(_)));
    let Some(first) = first else { return };
    for &action in &actions[first..] {
        match action.deed {
            Deed::Await(request) => {
                if let Some(before) = pieces.last_mut() {
                    before.to_ns = action.at_ns;
                }
                pieces.push(Piece {
                    actions: vec![action],
                    from_ns: action.at_ns,
                    to_ns: work_ns,
                    came_ns: requests[request as usize].begin_ns,
                });
            }
            Deed::End(request) => {
                let reads = |piece: &Piece| piece.actions.iter().any(|a| a.deed == Deed::Await(request));
                let own = pieces.iter().position(reads).unwrap_or(pieces.len() - 1);
                for later in pieces.drain(own + 1..).collect::<Vec<_>>() {
                    pieces[own].actions.extend(later.actions);
                    pieces[own].to_ns = later.to_ns;
                }
                pieces[own].actions.push(action);
            }
            _ => pieces
                .last_mut()
                .expect("one begins with the first")
                .actions
                .push(action),
        }
    }
    if pieces.is_sorted_by_key(|piece| piece.came_ns) {
        return;
    }
    let mut now_ns = pieces[0].from_ns;
    pieces.sort_by_key(|piece| piece.came_ns);
    let mut to = actions[first..].iter_mut();
    for piece in &pieces {
        for (action, slot) in piece.actions.iter().zip(&mut to) {
            *slot = Action {
                at_ns: now_ns + action.at_ns - piece.from_ns,
                deed: action.deed,
            };
        }
        now_ns += piece.to_ns - piece.from_ns;
    }
}
