// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much CPU time a request takes from run to run, and so what another run may take.
//!
//! - Several recordings: the logarithms of their CPU time per request are taken for draws of one normal distribution. One
//!   more draw lies, in nine of ten cases, within `mean -+ t * s * sqrt(1 + 1/n)`: s their standard deviation, t the 95th
//!   percentile of Student's distribution with n - 1 degrees of freedom (the prediction interval of every textbook). The
//!   costliest of n alone would not do: the next run is above it in one of n + 1 cases.
//! - One recording: another run may take throughout what one of its blocks took, between the 5th and the 95th percentile of
//!   them, but no further than the same interval reaches around their median, with the standard deviation that their quartiles
//!   give. A block in which a collector or a compiler ran is in the replay as it was; that all of another run is like
//!   that block is not to be expected. What differs between runs only is not in that: another run is taken to differ by
//!   [`ONE`] at least.
//! - Recordings taken one after the other are not independent if the machine drifts: they are too much alike. So
//!   the blocks of several recordings count as well as those of one: the one that reaches further.
//! - Recordings of less than an hour show nothing of what an hour changes: neighbours on the same hardware, clocks, caches.
//!   Whatever they show, another run is taken to differ by [`DRIFT`] at least.
//!
//! A caller that asks for ranges gets replays with all work scaled to both ends of this ([`crate::Recordings`]).
use plimsoll_replay::{Program, Stretch, STRETCH_NS};
use plimsoll_stats::{mean, rank_of, student_95, variance};
use schemars::JsonSchema;
use serde::Serialize;

/// Where the variation was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SeenIn {
    Recordings,
    /// Of one recording.
    Blocks,
    /// One recording, too short or with too few requests.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Variation {
    pub seen_in: SeenIn,
    /// CPU time per request, ns: of each recording, or of each block.
    pub cost_ns: Vec<f64>,
    /// Blocks only: how long they are on average.
    pub block_ns: Option<u64>,
    /// What nine of ten other runs take per request lies between `low` and `high` times what the median recording took.
    pub low: f64,
    pub high: f64,
    /// One of the two would lie beyond [`SCALES`].
    pub cut: bool,
}

const BLOCK_MIN_NS: u64 = 1_000_000_000;
/// A block's mean is that of so many requests at least. With fewer, what differs between requests would be taken for what
/// differs between blocks, and what goes on without requests for what they cost.
const BLOCK_REQUESTS: f64 = 10.0;
/// Fewer blocks say nothing about a distribution.
const BLOCKS_MIN: usize = 4;
/// How far the quartiles of a normal distribution are apart, in standard deviations.
const QUARTILES_APART: f64 = 1.349;

/// What the CPU time of a request is taken to change by where recordings cannot show it: about as much as it did within
/// four minutes between recordings of one and the same open loop (docs/src/reference/plan.md, "Several recordings").
pub const DRIFT: f64 = 0.1;
/// Likewise of one recording, which shows nothing of what differs between runs. Of runs of 10 s of one and the same service
/// within some minutes, nine of ten take at most so much more than another one did (docs/src/lab/plan.md, "One recording").
pub const ONE: f64 = 0.25;
/// Recordings that lie so far apart show the drift themselves.
pub const DRIFT_SEEN_AFTER_NS: u64 = 3_600_000_000_000;

/// What work may be scaled by: as `work.percent` of a replay, 1 to 10000.
pub const SCALES: [f64; 2] = [0.01, 100.0];

impl Variation {
    /// `costs`: of the recordings, at least one. `median`: which of them is in the middle.
    pub fn between(costs: Vec<f64>, median: usize) -> Variation {
        let logs: Vec<f64> = costs.iter().map(|c| (c / costs[median]).ln()).collect();
        let count = logs.len() as f64;
        let (mean, variance) = (mean(&logs), variance(&logs).unwrap_or(0.0));
        let off = student_95(costs.len().saturating_sub(1)) * (variance * (1.0 + 1.0 / count)).sqrt();
        Variation {
            seen_in: SeenIn::Recordings,
            block_ns: None,
            low: (mean - off).exp().min(1.0),
            high: (mean + off).exp().max(1.0),
            cut: false,
            cost_ns: costs,
        }
    }

    /// Reaches at least as far as the blocks of all recordings do. `median_ns`: cost of the median one.
    pub fn and_blocks(mut self, programs: &[&Program], median_ns: f64) -> Variation {
        let costs = programs.iter().flat_map(|p| block_costs(&p.stretches).1);
        if let Some((low, high)) = one_more(costs.collect()) {
            self.low = self.low.min(low / median_ns);
            self.high = self.high.max(high / median_ns);
        }
        self
    }

    /// Reaches at least as far as a machine drifts, unless the recordings begin far enough apart to show that; of one
    /// recording as far as runs differ.
    pub fn and_drift(mut self, apart_ns: u64) -> Variation {
        let least = match (self.seen_in, apart_ns >= DRIFT_SEEN_AFTER_NS) {
            (SeenIn::Recordings, true) => return self,
            (SeenIn::Recordings, false) => DRIFT,
            (SeenIn::Blocks | SeenIn::Nothing, _) => ONE,
        };
        self.low = self.low.min(1.0 / (1.0 + least));
        self.high = self.high.max(1.0 + least);
        self
    }

    /// No further than replays can go. Recordings that differ so much are hardly of one service.
    pub fn within_scales(mut self) -> Variation {
        let [least, most] = SCALES;
        self.cut = self.low < least || self.high > most;
        self.low = self.low.max(least);
        self.high = self.high.min(most);
        self
    }

    pub fn within(program: &Program) -> Variation {
        let (block_ns, costs) = block_costs(&program.stretches);
        match one_more(costs.clone()) {
            None => Variation {
                seen_in: SeenIn::Nothing,
                cost_ns: vec![program.cost_ns()],
                block_ns: None,
                low: 1.0,
                high: 1.0,
                cut: false,
            },
            Some((low, high)) => Variation {
                seen_in: SeenIn::Blocks,
                low: (low / program.cost_ns()).min(1.0),
                high: (high / program.cost_ns()).max(1.0),
                cut: false,
                block_ns: Some(block_ns),
                cost_ns: costs,
            },
        }
    }

    /// By how much the costliest seen is above the cheapest, as a share of that.
    pub fn difference(&self) -> f64 {
        let cheapest = self.cost_ns.iter().copied().fold(f64::INFINITY, f64::min);
        self.cost_ns.iter().copied().fold(0.0, f64::max) / cheapest - 1.0
    }
}

/// Between which costs one more block lies in nine of ten cases: the 5th and the 95th percentile, as far as the quartiles let
/// expect them. `None`: of too few.
fn one_more(mut costs: Vec<f64>) -> Option<(f64, f64)> {
    let count = costs.len();
    if count < BLOCKS_MIN {
        return None;
    }
    costs.sort_by(f64::total_cmp);
    let at = |percent| costs[rank_of(percent, count)];
    let [low, middle, high] = [25.0, 50.0, 75.0].map(|percent| at(percent).ln());
    let deviation = (high - low) / QUARTILES_APART;
    let off = student_95(count - 1) * deviation * (1.0 + 1.0 / count as f64).sqrt();
    Some((
        at(5.0).max((middle - off).exp()),
        at(95.0).min((middle + off).exp()),
    ))
}

/// CPU time per request of each block, and how long blocks are on average: each is 1 s, and as much longer as it takes for
/// enough requests. What is left at the end is left out if it is less than a block.
fn block_costs(stretches: &[Stretch]) -> (u64, Vec<f64>) {
    // A service may have been idle before and after.
    let busy = |s: &Stretch| s.requests > 0.0;
    let (Some(first), Some(last)) = (stretches.iter().position(busy), stretches.iter().rposition(busy))
    else {
        return (BLOCK_MIN_NS, Vec::new());
    };
    // The first and the last are not whole.
    let whole = &stretches[(first + 1).min(last)..last];
    let (mut costs, mut cut, mut block) = (Vec::new(), 0, Stretch::default());
    for (ix, stretch) in whole.iter().enumerate() {
        block.work_ns += stretch.work_ns;
        block.requests += stretch.requests;
        let length_ns = (ix + 1 - cut) as u64 * STRETCH_NS;
        // Requests are sums of shares.
        if length_ns >= BLOCK_MIN_NS && block.requests > BLOCK_REQUESTS - 1e-6 {
            costs.push(block.work_ns / block.requests);
            (cut, block) = (ix + 1, Stretch::default());
        }
    }
    let mean_ns = cut as u64 * STRETCH_NS / (costs.len() as u64).max(1);
    costs.retain(|cost| *cost > 0.0);
    (mean_ns.max(BLOCK_MIN_NS), costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_that_agree_leave_no_doubt_and_those_that_do_not_leave_more_than_they_differ() {
        let same = Variation::between(vec![2e5, 2e5, 2e5], 1);
        assert_eq!((same.low, same.high), (1.0, 1.0));
        let three = Variation::between(vec![2.0e5, 2.2e5, 2.1e5], 2);
        assert!((three.difference() - 0.1).abs() < 1e-9);
        // s of the logarithms is 0.0477; 2.92 * sqrt(4/3) of it, around 2.098e5.
        assert!((three.high - 1.173).abs() < 0.002, "{three:?}");
        assert!((three.low - 0.850).abs() < 0.002, "{three:?}");
        // Two that differ by as much say far less about a third.
        assert!(Variation::between(vec![2.0e5, 2.2e5], 0).high > 1.5);
    }

    #[test]
    fn more_recordings_of_the_same_spread_narrow_what_another_may_take() {
        let costs = |count: usize| {
            (0..count)
                .map(|i| 2e5 * (1.0 + 0.1 * (i % 3) as f64 / 2.0))
                .collect()
        };
        let [three, nine, thirty] = [3, 9, 30].map(|count| Variation::between(costs(count), 1).high);
        assert!(
            three > nine && nine > thirty && thirty > 1.05,
            "{three} {nine} {thirty}"
        );
    }

    #[test]
    fn a_block_with_a_collector_in_it_is_not_what_another_run_is_like() {
        let alike = || (0..13).map(|i| 7e5 * (1.0 + 0.02 * f64::from(i % 3)));
        let (low, high) = one_more(alike().collect()).unwrap();
        assert!(low <= 7e5 && (7.2e5..8e5).contains(&high), "{low} {high}");
        let (_, with) = one_more(alike().chain([4e6]).collect()).unwrap();
        assert!(with < 1.1 * high, "{with} {high}");
        // What a third of the blocks does another run may do.
        let (_, often) = one_more((0..12).map(|i| if i % 3 == 0 { 2e6 } else { 7e5 }).collect()).unwrap();
        assert!(often >= 2e6, "{often}");
        assert!(one_more(vec![7e5; 3]).is_none());
    }

    #[test]
    fn a_machine_drifts_unless_recordings_of_different_hours_show_that_it_does_not() {
        let same = || Variation::between(vec![2e5, 2e5, 2e5], 1);
        let near = same().and_drift(DRIFT_SEEN_AFTER_NS - 1);
        assert_eq!((near.low, near.high), (1.0 / 1.1, 1.1));
        assert_eq!(same().and_drift(DRIFT_SEEN_AFTER_NS), same());
        let one = Variation {
            seen_in: SeenIn::Blocks,
            ..same()
        };
        assert_eq!(one.and_drift(0).high, 1.25, "one says less than three");
        let wide = Variation::between(vec![2.0e5, 2.2e5, 2.1e5], 2);
        assert_eq!(
            wide.clone().and_drift(0),
            wide,
            "what was seen counts if it is more"
        );
    }

    #[test]
    fn what_another_run_may_take_ends_where_replays_do() {
        let wild = Variation::between(vec![3e3, 9e6], 1).within_scales();
        assert_eq!((wild.low, wild.high, wild.cut), (0.01, 100.0, true));
        assert!(!Variation::between(vec![2e5, 2.2e5], 1).within_scales().cut);
    }

    #[test]
    fn student_goes_on_smoothly_where_the_table_ends() {
        assert!((student_95(11) - 1.796).abs() < 2e-3, "{}", student_95(11));
        assert!((student_95(1000) - 1.646).abs() < 2e-3);
    }

    #[test]
    fn blocks_are_long_enough_to_hold_requests_and_leave_idle_ends_out() {
        let stretch = |requests: f64, work_ns: f64| Stretch { work_ns, requests };
        let mut stretches = vec![Stretch::default(); 20];
        // 10 s with 50 requests a second of 1 ms, every other second 2 ms.
        stretches.extend((0..102).map(|i| stretch(5.0, 5e6 * f64::from(1 + (i - 1) / 10 % 2))));
        stretches.extend(vec![Stretch::default(); 20]);
        let (block_ns, costs) = block_costs(&stretches);
        assert_eq!((block_ns, costs.len()), (1_000_000_000, 10));
        assert!(
            costs
                .iter()
                .all(|c| (c / 1e6 - 1.0).abs() < 0.01 || (c / 1e6 - 2.0).abs() < 0.01),
            "{costs:?}"
        );
        // Two requests in a second: blocks of 5 s.
        let (block_ns, _) = block_costs(&vec![stretch(0.2, 1e6); 400]);
        assert_eq!(block_ns, 5_000_000_000);
        assert_eq!(block_costs(&[]).1.len(), 0);
    }

    #[test]
    fn block_without_its_ten_requests_goes_on_until_they_are_in() {
        // A request takes 1 ms; each second of 100 is followed by three of one, and 20 ms a second go on by themselves.
        let stretch = |requests: f64| Stretch {
            work_ns: 2e6 + requests * 1e6,
            requests,
        };
        let of = |ix: u32| match (ix / 10 % 4, ix % 10) {
            (0, _) => stretch(10.0),
            (_, 5) => stretch(1.0),
            _ => stretch(0.0),
        };
        let stretches: Vec<Stretch> = (0..602).map(of).collect();
        let (block_ns, costs) = block_costs(&stretches);
        // The costliest: three seconds of one, and as much of the next as brings ten. Alone they would take 21 ms each.
        let most = costs.iter().copied().fold(0.0, f64::max);
        assert!((5e6..8e6).contains(&most), "{costs:?}");
        assert!((1_000_000_000..2_500_000_000).contains(&block_ns), "{block_ns}");
        // Ten requests at one end, and none for a minute: a stretch that is less than a block does not count.
        let mut late = vec![stretch(1.0); 12];
        late.extend(vec![stretch(0.0); 600]);
        late.push(stretch(1.0));
        assert_eq!(block_costs(&late).1.len(), 1);
    }
}
