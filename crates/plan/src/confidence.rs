//! How sure a figure is: what it would have been in other runs as long as the recording.
//!
//! Two things differ from run to run even if the service does the same: where the period's boundaries fall, and which
//! stretch of its life is seen. The first is drawn anew for each replicate of the replay. The second is had by block
//! bootstrap: each replicate is cut into blocks, and as many blocks are drawn with replacement as there were. Blocks are
//! long compared with a period, so that what a throttling does to the requests behind it stays together.
use plimsoll_replay::{percentile_ns, Outcome};
use rand::Rng;
use rand_pcg::Pcg64;
use serde::Serialize;

/// Nine of ten runs are expected between the two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

const RESAMPLES: usize = 200;
const BLOCK_MIN_NS: u64 = 1_000_000_000;
/// Periods in a block, at least.
const BLOCK_PERIODS: u64 = 10;

/// Names this use of the seed.
const STREAM: u128 = 0x0062_6f6f_7473_7472_6170;

/// Range of a percentile of the latencies of `keep`, over replicates of one setting. `None`: no requests.
pub fn percentile_range(
    replicates: &[Outcome],
    percent: f64,
    keep: impl Fn(u32) -> bool,
    period_ns: u64,
    seed: u64,
) -> Option<Range> {
    let block_ns = BLOCK_MIN_NS.max(BLOCK_PERIODS * period_ns);
    let blocks: Vec<Vec<Vec<u64>>> = replicates.iter().map(|o| blocks_of(o, block_ns, &keep)).collect();
    let mut rng = Pcg64::new(u128::from(seed), STREAM);
    let mut found = Vec::with_capacity(RESAMPLES);
    let mut drawn = Vec::new();
    for _ in 0..RESAMPLES {
        let own = &blocks[rng.random_range(0..blocks.len())];
        if own.is_empty() {
            return None;
        }
        drawn.clear();
        for _ in 0..own.len() {
            drawn.extend_from_slice(&own[rng.random_range(0..own.len())]);
        }
        if drawn.is_empty() {
            continue;
        }
        let rank = ((percent / 100.0 * drawn.len() as f64).ceil() as usize).clamp(1, drawn.len()) - 1;
        found.push(*drawn.select_nth_unstable(rank).1);
    }
    found.sort_unstable();
    (!found.is_empty()).then(|| Range {
        low: percentile_ns(&found, 5.0) as f64,
        middle: percentile_ns(&found, 50.0) as f64,
        high: percentile_ns(&found, 95.0) as f64,
    })
}

fn blocks_of(outcome: &Outcome, block_ns: u64, keep: &impl Fn(u32) -> bool) -> Vec<Vec<u64>> {
    // A short recording is cut into four at least: with one block there would be nothing to draw from.
    let block_ns = block_ns.min(outcome.busy_ns / 4 + 1);
    let mut blocks: Vec<Vec<u64>> = vec![Vec::new(); (outcome.busy_ns / block_ns + 1) as usize];
    let last = blocks.len() - 1;
    for request in outcome.requests.iter().filter(|r| keep(r.class)) {
        blocks[((request.begin_ns / block_ns) as usize).min(last)].push(request.latency_ns);
    }
    blocks.retain(|b| !b.is_empty());
    blocks
}

/// Range of a figure of which each replicate gives one value.
pub fn value_range(values: &[f64]) -> Option<Range> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Range {
        low: *sorted.first()?,
        middle: sorted[sorted.len() / 2],
        high: *sorted.last()?,
    })
}
