// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the candidates are shown: the recommendation, what the next cheaper one misses, and the frontier.
use crate::goal::Subject;
use crate::search::{Candidate, Limits, Options, PlanError, Search, Verdict};

impl Search<'_> {
    /// The most that can be had for less than the recommendation and misses a goal: if possible in the middle
    /// of its range, and not only in the first replay.
    pub(crate) fn next_cheaper(
        &self,
        frontier: &[Candidate],
        recommended: &Candidate,
    ) -> Result<Option<Candidate>, PlanError> {
        let mut first = None;
        let cheaper = |c: &&Candidate| !c.meets && c.reserved_cpus < recommended.reserved_cpus - 1e-3;
        for candidate in frontier.iter().rev().filter(cheaper) {
            let close = self.closely(candidate)?;
            if !close.meets {
                return Ok(Some(close));
            }
            first.get_or_insert(close);
        }
        Ok(first)
    }

    /// The cheapest that meets the goals over its whole range.
    pub(crate) fn recommend(&self, tried: &[Candidate]) -> Result<(Verdict, Candidate), PlanError> {
        let mut narrow: Vec<Candidate> = Vec::new();
        // They are in order of preference: of each amount of CPU the first, and if that one's range does not hold, the one
        // with most room in costly runs.
        let safe: Vec<&Candidate> = tried.iter().filter(|c| c.meets && c.meets_costly).collect();
        for same in safe.chunk_by(|a, b| b.reserved_cpus < a.reserved_cpus * 1.001) {
            let roomiest = same
                .iter()
                .max_by(|a, b| self.room(a).total_cmp(&self.room(b)))
                .filter(|c| c.limits != same[0].limits);
            for candidate in std::iter::once(&same[0]).chain(roomiest) {
                let close = self.closely(candidate)?;
                if close.meets_costly {
                    return Ok((Verdict::Met, close));
                }
                narrow.push(close);
            }
        }
        let seen: Vec<Limits> = narrow.iter().map(|c| c.limits).collect();
        for candidate in self.roomiest(tried, &seen) {
            narrow.push(self.closely(candidate)?);
        }
        // What one replay says is not all: a range may hold where that one's costly end did not.
        let cheapest = narrow
            .iter()
            .filter(|c| c.meets && c.meets_costly)
            .min_by(|a, b| {
                let cheaper = a.reserved_cpus.total_cmp(&b.reserved_cpus);
                cheaper.then(self.turns_a_knob(a).cmp(&self.turns_a_knob(b)))
            });
        if let Some(close) = cheapest {
            return Ok((Verdict::Met, close.clone()));
        }
        let most = narrow
            .into_iter()
            .rev()
            .filter(|c| c.meets)
            .max_by(|a, b| self.room(a).total_cmp(&self.room(b)));
        if let Some(close) = most {
            return Ok((Verdict::MetNarrowly, close));
        }
        let nearest = tried
            .iter()
            .max_by(|a, b| {
                self.handicapped(a, a.margin)
                    .total_cmp(&self.handicapped(b, b.margin))
            })
            .expect("the longest period takes every quota");
        let close = self.closely(nearest)?;
        Ok((verdict_of(&close), close))
    }

    /// Those that meet the goals as recorded, the ones with most room in costly runs first; without those in `seen`.
    fn roomiest<'a>(&self, tried: &'a [Candidate], seen: &[Limits]) -> Vec<&'a Candidate> {
        let unseen = |c: &&Candidate| c.meets && !seen.contains(&c.limits);
        let mut found: Vec<&Candidate> = tried.iter().filter(unseen).collect();
        // Of equal ones the cheapest first, as they come.
        found.sort_by(|a, b| self.room(b).total_cmp(&self.room(a)));
        found.truncate(ROOMIEST);
        found
    }

    /// Whether it asks for more than another limit: another weight than today's, or headroom.
    pub(crate) fn turns_a_knob(&self, candidate: &Candidate) -> bool {
        let (own, today) = (&candidate.limits, &self.today);
        own.weight != today.weight || own.headroom_percent > today.headroom_percent
    }

    /// Room in costly runs, by which candidates are compared.
    fn room(&self, candidate: &Candidate) -> f64 {
        self.handicapped(candidate, candidate.margin_costly)
    }

    /// A margin, less what another knob has to be worth.
    fn handicapped(&self, candidate: &Candidate, margin: f64) -> f64 {
        match self.turns_a_knob(candidate) {
            true => margin - WORTH_A_STEP,
            false => margin,
        }
    }
}

/// Where no setting is safe, so many more of those that do as recorded are looked at closely.
const ROOMIEST: usize = 4;

/// Less room than this, as a share of a goal's bound, or less latency, as a share of itself, is not worth a step.
const WORTH_A_STEP: f64 = 0.01;

/// What one that was looked at closely may be called.
fn verdict_of(close: &Candidate) -> Verdict {
    match (close.meets, close.meets_costly) {
        (true, true) => Verdict::Met,
        (true, false) => Verdict::MetNarrowly,
        (false, _) => Verdict::NotMet,
    }
}

/// By the first goal that is about latency, else by p99 of all requests, and where there are none by the share of throttled periods.
pub(crate) fn frontier(tried: &[Candidate], options: &Options) -> Vec<Candidate> {
    let by = options.goals.iter().position(|g| g.subject != Subject::Throttled);
    let value = |c: &Candidate| match by {
        Some(goal) => c.values[goal].unwrap_or(f64::INFINITY),
        None => c.p99_ns.unwrap_or(c.throttled),
    };
    let mut best = f64::INFINITY;
    let mut found: Vec<Candidate> = Vec::new();
    for candidate in tried {
        if value(candidate) < best * (1.0 - WORTH_A_STEP) {
            best = value(candidate);
            match found.last() {
                Some(last) if (last.reserved_cpus - candidate.reserved_cpus).abs() < 1e-3 => {
                    *found.last_mut().expect("there is a last") = candidate.clone();
                }
                _ => found.push(candidate.clone()),
            }
        }
    }
    found
}
