//! A trace file, read, believed and compiled; or the reasons why not.
use plimsoll_replay::{machine, percentile_ns, recorded, replay, Outcome, Program, Settings, SettingsError};
use plimsoll_sim::{Costs, Machine};
use plimsoll_trace::{Place, RequestSpec, Timeline, TraceError, DOUBTFUL_SHARE_MAX};
use std::path::Path;
use std::sync::{Arc, OnceLock};

pub struct Source {
    pub program: Arc<Program>,
    pub machine: Machine,
    /// What is doubtful about the trace, but not so much that it had to be refused.
    pub warnings: Vec<String>,
    /// What a request is.
    pub request: Option<RequestSpec>,
    /// What was recorded, and its replay under the recorded settings.
    compared: OnceLock<Option<(Outcome, Outcome)>>,
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

impl Source {
    /// Reads any kind of trace that Plimsoll knows. `group` is the one that is planned for; `None`: the one with the
    /// most CPU time. `request` is what counts as one; `None`: what was given as the trace was recorded, else wake-up
    /// chains.
    ///
    /// Refuses traces that contradict themselves in more than 1 of 100 switches, that hold no switches, and those in
    /// which no request is found.
    pub fn read(
        path: &Path,
        group: Option<&str>,
        request: Option<&RequestSpec>,
    ) -> Result<Source, SourceError> {
        let (header, timeline) = Timeline::open(path)?;
        let empty = |what, found: String, allowed: &str| SourceError::Empty {
            file: path.display().to_string(),
            what,
            found,
            allowed: allowed.into(),
        };
        if timeline.quality.switches == 0 {
            return Err(empty(
                "a replay needs switches of threads",
                format!("none in this trace (source: {})", header.source),
                "record with BPF (plimsoll record without --sample), or with perf sched record",
            ));
        }
        timeline.quality.check(&Place::whole(path), DOUBTFUL_SHARE_MAX)?;
        let recorded_with = header.request.as_deref().and_then(|text| text.parse().ok());
        let request = request.cloned().or(recorded_with);
        let smt_percent = Costs::default().smt_percent;
        let program = Program::build(&header, &timeline, group, request.as_ref(), smt_percent)?;
        if program.nr_requests() == 0 {
            let threads: Vec<&str> = busiest(&program);
            return Err(empty(
                "no request is found",
                format!(
                    "group {}, {}; busiest threads of the trace: {}",
                    program.groups[program.target as usize].path,
                    request.map_or("wake-up chains".into(), |r| r.to_string()),
                    threads.join(", ")
                ),
                "name another --group or --request",
            ));
        }
        Ok(Source {
            machine: machine(&header, &timeline),
            warnings: timeline.quality.warnings.iter().map(|w| w.to_string()).collect(),
            program: Arc::new(program),
            request,
            compared: OnceLock::new(),
        })
    }

    /// A percentile of the latencies of `keep` as recorded, over that of the replay under the recorded settings.
    pub fn known_error(&self, percent: f64, keep: impl Fn(u32) -> bool) -> f64 {
        let both = self.compared.get_or_init(|| {
            let settings = Settings::recorded(&self.program);
            let replayed = replay(&self.program, &self.machine, &settings, None).ok()?;
            Some((recorded(&self.program), replayed))
        });
        let value = |outcome: &Outcome| {
            let kept = outcome.requests.iter().filter(|r| keep(r.class));
            let mut latencies: Vec<u64> = kept.map(|r| r.latency_ns).collect();
            latencies.sort_unstable();
            percentile_ns(&latencies, percent) as f64
        };
        match both {
            Some((recorded, replayed)) if value(recorded) > 0.0 && value(replayed) > 0.0 => {
                value(recorded) / value(replayed)
            }
            _ => 1.0,
        }
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
