// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace file, read, believed and compiled; or the reasons why not.
use crate::quantities::{self_check, SelfCheck};
use plimsoll_replay::{machine, recorded, replay_cancelled_by, Outcome, Program, Settings, SettingsError};
use plimsoll_sim::{Costs, Machine};
use plimsoll_trace::{Place, RequestSpec, Sockets, Timeline, TraceError, DOUBTFUL_SHARE_MAX};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

pub struct Source {
    /// As it was named.
    pub file: String,
    pub program: Arc<Program>,
    pub machine: Machine,
    /// What is doubtful about the trace, but not so much that it had to be refused.
    pub warnings: Vec<String>,
    /// Why an answer may be taken for that of another request on its connection.
    pub streams_in_doubt: Option<String>,
    /// What a request is.
    pub request: Option<RequestSpec>,
    /// Why it has no requests, and what to do about it; `None`: it has. Then there is no latency, but CPU use and throttling.
    pub no_requests: Option<NoRequests>,
    /// What the trace says of the machine, for comparison with other recordings.
    pub recorded_on: plimsoll_trace::Machine,
    /// When this is set, replays are of no use any more: those under way end with an error.
    pub(crate) cancel: Option<Arc<AtomicBool>>,
    replayed: OnceLock<Result<Outcome, SettingsError>>,
    compared: OnceLock<Option<Compared>>,
}

/// Latencies as recorded, and as replayed under the recorded settings: of all requests, then of each class. Ascending.
struct Compared {
    recorded: Vec<Vec<u64>>,
    replayed: Vec<Vec<u64>>,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{file}: {what}: {found}; {allowed}")]
    Empty {
        file: String,
        what: &'static str,
        found: String,
        allowed: String,
    },
}

/// A recording without requests that can be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}: {found}; {allowed}")]
pub struct NoRequests {
    pub file: String,
    what: &'static str,
    found: String,
    allowed: String,
}

/// Why requests that are under way at once on one connection may be taken for others.
fn streams_in_doubt(sockets: &Sockets) -> Option<String> {
    let (which, besides) = match sockets.sealed {
        0 if sockets.lack_streams() => (
            "HTTP/2 was not looked for, as that needs cgroup v2 and CAP_NET_ADMIN".to_string(),
            "; each TLS handshake counts as a request",
        ),
        0 => return None,
        1 => ("a connection is encrypted and may be HTTP/2".into(), ""),
        n => (format!("{n} connections are encrypted and may be HTTP/2"), ""),
    };
    Some(format!(
        "{which}: where requests are under way at once on one connection, an answer may be taken for that of another request; where \
         clients wait for each answer, or speak HTTP/1.1, there is none{besides}"
    ))
}

impl Source {
    /// Reads any kind of trace that Plimsoll knows. `group` is the one that is planned for; `None`: the one with the
    /// most CPU time. `request` is what counts as one; `None`: what was given as the trace was recorded, else wake-up
    /// chains.
    ///
    /// Refuses traces that contradict themselves in more than 1 of 100 switches, and those that hold no switches.
    pub fn read(
        path: &Path,
        group: Option<&str>,
        request: Option<&RequestSpec>,
    ) -> Result<Source, SourceError> {
        Source::read_until(path, group, request, &AtomicBool::new(false))
    }

    /// As [`Source::read`], which ends soon after the flag is set.
    pub fn read_until(
        path: &Path,
        group: Option<&str>,
        request: Option<&RequestSpec>,
        flag: &AtomicBool,
    ) -> Result<Source, SourceError> {
        let (header, timeline) = Timeline::open_until(path, flag)?;
        let empty = |what, found: String, allowed: &str| SourceError::Empty {
            file: path.display().to_string(),
            what,
            found,
            allowed: allowed.into(),
        };
        if timeline.quality.switches == 0 {
            return Err(match header.source.as_str() {
                "bpf" => empty(
                    "a replay needs threads that ran",
                    format!("none of {} did", header.only_below.as_deref().unwrap_or("/")),
                    "record the service's own group (cat /proc/PID/cgroup) while it answers requests",
                ),
                source => empty(
                    "a replay needs switches of threads",
                    format!("none in this trace (source: {source})"),
                    "record with BPF (plimsoll record without --sample), or with perf sched record",
                ),
            });
        }
        timeline.quality.check(&Place::whole(path), DOUBTFUL_SHARE_MAX)?;
        let recorded_with = header.request.as_deref().and_then(|text| text.parse().ok());
        let request = request.cloned().or(recorded_with);
        let smt_percent = Costs::default().smt_percent;
        let program = Program::build(&header, &timeline, group, request.as_ref(), smt_percent)?;
        let none = |what, found, allowed: &str| NoRequests {
            file: path.display().to_string(),
            what,
            found,
            allowed: allowed.into(),
        };
        let pairing = program.pairing;
        let in_doubt = format!(
            "of {} answers {} came to a thread with no request since the answer before that is seen, and {} to one that had \
             asked again before it",
            pairing.answers, pairing.unseen, pairing.several
        );
        let no_requests = if !pairing.tells_apart() {
            Some(none(
                "which answer belongs to which request cannot be told from wake-ups",
                in_doubt.clone(),
                "clients with several requests under way: record with plimsoll record and without --request (sockets tell \
                 them apart), or name the threads that answer (--request comm:GLOB)",
            ))
        } else if program.nr_requests() == 0 {
            let group = &program.groups[program.target as usize].path;
            let definition = request
                .as_ref()
                .map_or("wake-up chains".into(), |r| r.to_string());
            let threads = busiest(&program).join(", ");
            Some(none(
                "no request is found",
                format!("group {group}, {definition}; busiest threads of the trace: {threads}"),
                "name another --group or --request",
            ))
        } else {
            None
        };
        let mut warnings: Vec<String> = timeline.quality.warnings.iter().map(|w| w.to_string()).collect();
        if no_requests.is_none() && pairing.in_doubt() > DOUBTFUL_SHARE_MAX {
            warnings.push(format!("latencies may be those of other requests: {in_doubt}"));
        }
        let by_wakeups = request.is_none() && program.sockets.is_none();
        if no_requests.is_none() && by_wakeups && header.sockets.lack_datagrams() {
            warnings.push(
                "no request over TCP or a Unix stream is seen, and none over UDP can be on the recorded kernel (6.3 and newer): what \
                 wake-ups show is taken for requests, and may not be what a client over UDP waits for"
                    .into(),
            );
        }
        let streams_in_doubt = program.sockets.and_then(|_| streams_in_doubt(&header.sockets));
        Ok(Source {
            file: path.display().to_string(),
            recorded_on: header.machine.clone(),
            machine: machine(&header, &timeline),
            warnings,
            streams_in_doubt,
            program: Arc::new(program),
            request,
            no_requests,
            cancel: None,
            replayed: OnceLock::new(),
            compared: OnceLock::new(),
        })
    }

    /// A replay on the recorded machine.
    pub fn replay(&self, settings: &Settings) -> Result<Outcome, SettingsError> {
        replay_cancelled_by(&self.program, &self.machine, settings, None, self.cancel.as_ref())
    }

    /// The replay under the recorded settings; done once.
    pub fn replayed(&self) -> Result<&Outcome, SettingsError> {
        let run = || self.replay(&Settings::recorded(&self.program));
        self.replayed
            .get_or_init(run)
            .as_ref()
            .map_err(SettingsError::clone)
    }

    /// Whether that shows what was recorded.
    ///
    /// # Errors
    /// As for [`Source::replay`].
    pub fn self_check(&self) -> Result<SelfCheck, SettingsError> {
        Ok(self_check(
            &self.program,
            &recorded(&self.program),
            self.replayed()?,
        ))
    }

    /// A figure of the ascending latencies of one class, or of all, as recorded, over that of the replay under the
    /// recorded settings.
    pub fn known_error(&self, class: Option<u32>, figure: impl Fn(&[u64]) -> f64) -> f64 {
        let both = self.compared.get_or_init(|| {
            let all = |outcome: &Outcome| {
                let classes = (0..self.program.classes.len() as u32).map(Some);
                std::iter::once(None)
                    .chain(classes)
                    .map(|class| outcome.latencies(class))
                    .collect()
            };
            Some(Compared {
                recorded: all(&recorded(&self.program)),
                replayed: all(self.replayed().ok()?),
            })
        });
        let Some(both) = both else { return 1.0 };
        let at = class.map_or(0, |class| class as usize + 1);
        let [recorded, replayed] = [&both.recorded, &both.replayed].map(|of| figure(&of[at]));
        match recorded > 0.0 && replayed > 0.0 {
            true => recorded / replayed,
            false => 1.0,
        }
    }

    /// What a request is in it, in words.
    pub fn definition(&self) -> String {
        match (&self.request, self.program.sockets) {
            (Some(request), _) => request.to_string(),
            (None, Some(_)) => "as the service's sockets see them".into(),
            (None, None) => "wake-up chains".into(),
        }
    }

    /// What the trace says against itself, and the kernel's own count against the trace.
    pub fn doubts(&self) -> Vec<String> {
        let target = &self.program.groups[self.program.target as usize];
        self.warnings.iter().cloned().chain(target.doubt()).collect()
    }

    pub fn target_path(&self) -> &str {
        &self.program.groups[self.program.target as usize].path
    }
}

fn busiest(program: &Program) -> Vec<&str> {
    let mut threads: Vec<_> = program.threads.iter().collect();
    threads.sort_by_key(|t| std::cmp::Reverse(t.work_ns));
    threads.iter().take(5).map(|t| t.name.as_str()).collect()
}
