// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that wait, on the recorded machine and not recorded themselves: what such a client runs between an answer and its next
//! request it runs in a replay after each answer. It takes that from the service: with many clients one of them nearly always
//! runs, and the more the sooner they are answered.
//!
//! The pause before the next request stays as it was recorded. What the client ran is in it.
use crate::request::{Arrival, RequestInfo};

/// A stretch in which a CPU ran clients that sent and then wanted no more.
pub(crate) struct Sent {
    /// Into [`crate::Program::groups`].
    pub group: u32,
    pub cpu: u32,
    pub ran_ns: u64,
    /// What they sent.
    pub requests: Vec<u32>,
}

/// What clients of a group ran on one CPU is one task's: no more of them run at once than did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    /// Group of each, and the CPU on which it begins.
    pub tasks: Vec<(u32, u32)>,
    /// Of each request: the task that runs as it is answered, and for how long, ns.
    answered: Vec<Option<(u32, u64)>>,
}

impl Clients {
    pub fn find(sent: Vec<Sent>, requests: &[RequestInfo]) -> Clients {
        let mut found = Clients {
            tasks: Vec::new(),
            answered: vec![None; requests.len()],
        };
        for Sent {
            group,
            cpu,
            ran_ns,
            requests: own,
        } in sent.into_iter().filter(|sent| !sent.requests.is_empty())
        {
            let task = found.tasks.iter().position(|known| *known == (group, cpu));
            let task = task.unwrap_or_else(|| {
                found.tasks.push((group, cpu));
                found.tasks.len() - 1
            });
            let each_ns = ran_ns / own.len() as u64;
            for request in own {
                if let Arrival::After { request: before, .. } = requests[request as usize].arrival {
                    found.answered[before as usize] = Some((task as u32, each_ns));
                }
            }
        }
        found
    }

    /// What runs as a request is answered: which task, and for how long, ns.
    pub fn answered(&self, request: u32) -> Option<(u32, u64)> {
        self.answered[request as usize]
    }
}
