// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that a thread has not served yet: bursts whose wake-up has come.
//!
//! They are served in the order in which they came, but a thread in the middle of something takes none that was recorded
//! after what it waits for. Behind a limit that is too small the queue is as long as the recording, and nearly all of
//! it came too early for that wait: so messages are kept in both orders, and neither is ever searched from end to end.
use crate::program::BurstIx;
use std::collections::{BTreeMap, VecDeque};

#[derive(Default)]
pub(crate) struct Inbox {
    /// In order of arrival; `None`: taken out of turn. The first is never `None`.
    arrived: VecDeque<Option<BurstIx>>,
    /// How many arrived before the first of `arrived`.
    gone: u64,
    /// The same messages in the order of the recording, each with how many arrived before it.
    recorded: BTreeMap<BurstIx, u64>,
}

impl Inbox {
    /// A message that is here already is none.
    pub fn push(&mut self, burst: BurstIx) {
        if self.recorded.contains_key(&burst) {
            return;
        }
        self.recorded.insert(burst, self.gone + self.arrived.len() as u64);
        self.arrived.push_back(Some(burst));
    }

    /// Takes the message that came first.
    pub fn first(&mut self) -> Option<BurstIx> {
        let burst = self.arrived.front().copied().flatten()?;
        self.remove(burst);
        Some(burst)
    }

    /// Takes the message that came first of those recorded up to `last`. Of them there are as many as others have
    /// overtaken on their way: few.
    pub fn first_up_to(&mut self, last: BurstIx) -> Option<BurstIx> {
        let early = self.recorded.range(..=last);
        let (&burst, _) = early.min_by_key(|(_, &arrival)| arrival)?;
        self.remove(burst);
        Some(burst)
    }

    fn remove(&mut self, burst: BurstIx) {
        let Some(arrival) = self.recorded.remove(&burst) else {
            return;
        };
        self.arrived[(arrival - self.gone) as usize] = None;
        while let Some(None) = self.arrived.front() {
            self.arrived.pop_front();
            self.gone += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{seq::SliceRandom, Rng, SeedableRng};
    use rand_pcg::Pcg64;

    /// What an inbox does, by looking at each message in turn.
    fn first_of(inbox: &mut Vec<BurstIx>, last: BurstIx) -> Option<BurstIx> {
        let at = inbox.iter().position(|&burst| burst <= last)?;
        Some(inbox.remove(at))
    }

    #[test]
    fn messages_are_served_in_order_of_arrival_within_what_may_be_served() {
        let mut rng = Pcg64::seed_from_u64(1);
        for _ in 0..100 {
            let mut bursts: Vec<BurstIx> = (0..60).collect();
            bursts.shuffle(&mut rng);
            let (mut inbox, mut plain) = (Inbox::default(), Vec::new());
            while !bursts.is_empty() || !plain.is_empty() {
                match rng.random_range(0..4) {
                    0 | 1 => bursts.pop().into_iter().for_each(|burst| {
                        inbox.push(burst);
                        plain.push(burst);
                    }),
                    2 => assert_eq!(inbox.first(), first_of(&mut plain, BurstIx::MAX)),
                    _ => {
                        let last = rng.random_range(0..60);
                        assert_eq!(inbox.first_up_to(last), first_of(&mut plain, last));
                    }
                }
            }
        }
    }

    /// For 300,000 messages a look at each for each would be 90,000,000,000 of them.
    #[test]
    fn a_wait_looks_at_no_message_that_came_too_early_for_it() {
        const COUNT: BurstIx = 300_000;
        let mut inbox = Inbox::default();
        (COUNT..2 * COUNT).for_each(|burst| inbox.push(burst));
        for awaited in 0..COUNT {
            assert_eq!(inbox.first_up_to(awaited), None);
            inbox.push(awaited);
            assert_eq!(inbox.first_up_to(awaited), Some(awaited));
            assert_eq!(inbox.first(), Some(COUNT + awaited));
        }
        assert_eq!(inbox.first(), None);
    }
}
