// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs what is missing of a sweep, on all CPUs.
use crate::points::Points;
use crate::shard::Shard;
use crate::store::{Store, StoreError};
use plimsoll_columns::Row;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows wait at most this long for the disk: what a kill costs is run again.
const WAIT: Duration = Duration::from_secs(5);
/// And not more than these, some MB.
const ROWS: usize = 1000;
/// How soon a wish to stop is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Of the shard.
    pub points: u64,
    /// Points that were there before, or that another point equals.
    pub there: u64,
    /// Points that were run.
    pub run: u64,
    /// Of these, the ones that could not go on: their rows say why in `error`.
    pub failed: u64,
    /// It was told to stop before the end.
    pub stopped: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bug of the simulator.
    #[error("{0}")]
    Panic(String),
}

/// Points of one combination with the keys of their rows.
struct Work {
    combination: usize,
    seeds: Vec<(u64, String)>,
}

type Sent = Result<(String, Row), String>;

/// Runs the shard's points whose rows are not there yet. `progress` is told how many of how many are there. When `stop` is
/// set, what is done is written, and it returns: points that are under way are for nothing.
pub fn run(
    points: &Arc<dyn Points>,
    store: &Store,
    shard: Shard,
    stop: &Arc<AtomicBool>,
    progress: &dyn Fn(u64, u64),
) -> Result<Done, RunError> {
    let (work, mut done) = missing(points.as_ref(), shard, store.keys()?);
    let missing: u64 = work.iter().map(|work| work.seeds.len() as u64).sum();
    progress(done.there, done.points);
    let (sender, receiver) = channel::<Sent>();
    let (points, ends) = (points.clone(), Ends(stop.clone(), Arc::default()));
    let left = ends.1.clone();
    // Not in a scope: a run that is told to stop does not wait for the points under way.
    rayon::spawn(move || {
        let points = points.as_ref();
        match points.side_by_side() {
            true => work
                .into_par_iter()
                .for_each_with(sender, |sender, work| run_one(points, work, sender, &ends)),
            false => work
                .into_iter()
                .for_each(|work| run_one(points, work, &sender, &ends)),
        }
    });
    let mut batch = Vec::new();
    let mut written = Instant::now();
    let result = loop {
        let sent = receiver.recv_timeout(LOOK);
        let ended = matches!(sent, Err(RecvTimeoutError::Disconnected));
        let stopped = stop.load(Ordering::Relaxed);
        match sent {
            Ok(Ok((key, row))) => {
                done.run += 1;
                done.failed += u64::from(row.contains_key("error"));
                batch.push((key, row));
                progress(done.there + done.run, done.points);
            }
            Ok(Err(panic)) => break Err(RunError::Panic(panic)),
            Err(_) => {}
        }
        let due = batch.len() >= ROWS || written.elapsed() >= WAIT || ended || stopped;
        if due && !batch.is_empty() {
            if let Err(error) = store.add(&batch) {
                break Err(error.into());
            }
            batch.clear();
        }
        if due {
            written = Instant::now();
        }
        if ended || stopped {
            done.stopped = done.run < missing;
            break Ok(done);
        }
    };
    left.store(true, Ordering::Relaxed);
    result
}

/// What is not there yet, each key once.
fn missing(points: &dyn Points, shard: Shard, mut there: BTreeSet<String>) -> (Vec<Work>, Done) {
    let mut all: Vec<Work> = Vec::new();
    let mut done = Done {
        points: 0,
        there: 0,
        run: 0,
        failed: 0,
        stopped: false,
    };
    for point in (0..points.points()).filter(|point| shard.has(*point)) {
        let key = points.key(point);
        done.points += 1;
        if !there.insert(key.clone()) {
            done.there += 1;
            continue;
        }
        let combination = points.combination(point);
        let seed = (points.seed(point), key);
        match all.last_mut() {
            Some(last) if last.combination == combination => last.seeds.push(seed),
            _ => all.push(Work {
                combination,
                seeds: vec![seed],
            }),
        }
    }
    (all, done)
}

/// The caller wants it to stop, and no longer waits for it.
#[derive(Clone)]
struct Ends(Arc<AtomicBool>, Arc<AtomicBool>);

impl Ends {
    fn now(&self) -> bool {
        self.0.load(Ordering::Relaxed) || self.1.load(Ordering::Relaxed)
    }
}

fn run_one(points: &dyn Points, work: Work, sender: &Sender<Sent>, ends: &Ends) {
    if ends.now() {
        return;
    }
    let runner = match catch_unwind(AssertUnwindSafe(|| points.runner(work.combination, &ends.0))) {
        Ok(runner) => runner,
        Err(_) => {
            let _ = sender.send(Err(format!("combination {} panicked", work.combination)));
            return;
        }
    };
    let combination = &points.grid().combinations[work.combination];
    let one = |sender: &Sender<Sent>, (seed, key): (u64, String)| {
        if ends.now() {
            return;
        }
        let sent = catch_unwind(AssertUnwindSafe(|| runner(seed, &ends.0)));
        let sent = sent
            .map(|row| row.map(|row| (key, row)))
            .map_err(|_| format!("the run of seed {seed} of {combination:?} panicked"));
        if let Some(sent) = sent.transpose() {
            // The receiver is gone: nothing is lost but this point.
            let _ = sender.send(sent);
        }
    };
    match points.side_by_side() {
        true => work
            .seeds
            .into_par_iter()
            .for_each_with(sender.clone(), |sender, seed| one(sender, seed)),
        false => work.seeds.into_iter().for_each(|seed| one(sender, seed)),
    }
}
