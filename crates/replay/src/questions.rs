// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which question an answer on a connection is to, and what of the data that came a read takes.
use std::collections::VecDeque;

/// What has been asked on a connection and not been answered, in order: it is answered in that order.
#[derive(Default)]
pub(crate) struct Questions {
    /// By numbers of the caller's.
    open: VecDeque<u32>,
    /// The first has been answered, at least in part.
    answered: bool,
}

impl Questions {
    pub fn ask(&mut self, question: u32) {
        if self.answered {
            self.open.pop_front();
        }
        self.answered = false;
        self.open.push_back(question);
    }

    /// What an answer is to. The only question stays: its answer may come in parts.
    pub fn answer(&mut self) -> Option<u32> {
        match self.open.len() {
            0 | 1 => {
                self.answered = true;
                self.open.front().copied()
            }
            _ => self.open.pop_front(),
        }
    }

    /// How many have no answer, and not a part of one.
    pub fn waiting(&self) -> usize {
        self.open.len().saturating_sub(usize::from(self.answered))
    }
}

/// So much is read: when and by what the last of it was sent. Of a Unix stream it is not known how much was.
pub(crate) fn take<By>(unread: &mut VecDeque<(i64, By, u32)>, bytes: u32) -> Option<(i64, By)> {
    let mut left = bytes;
    let mut last = None;
    while let Some((ns, by, sent)) = unread.pop_front() {
        last = Some((ns, by));
        left = left.saturating_sub(sent);
        if left == 0 {
            break;
        }
    }
    last
}
