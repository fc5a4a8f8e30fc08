// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a sweep runs: points, each with a key of its content and a row.
use crate::grid::Grid;
use crate::key::Content;
use plimsoll_columns::Row;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Runs a combination with a seed. `None`: the flag was set on the way. A run that cannot go on has `error` and nothing else.
pub type Runner<'a> = Box<dyn Fn(u64, &Arc<AtomicBool>) -> Option<Row> + Sync + 'a>;

/// Each combination of a grid with each seed, the seeds of one after another.
pub trait Points: Send + Sync {
    fn grid(&self) -> &Grid;

    /// What the runs of a combination depend on but their seeds.
    fn content(&self, combination: usize) -> Content;

    /// What all runs of a combination share is read here.
    fn runner(&self, combination: usize, stop: &Arc<AtomicBool>) -> Runner<'_>;

    /// Whether a run is of one thread, and several are done at a time. Runs that are parallel in themselves come one after
    /// another: where threads that wait within one begin others, none would end before nearly all have begun.
    fn side_by_side(&self) -> bool;

    fn points(&self) -> u64 {
        self.grid().points()
    }

    /// The number of a point's combination.
    fn combination(&self, point: u64) -> usize {
        (point / self.grid().seeds.len() as u64) as usize
    }

    fn seed(&self, point: u64) -> u64 {
        let seeds = &self.grid().seeds;
        seeds[(point % seeds.len() as u64) as usize]
    }

    fn key(&self, point: u64) -> String {
        self.content(self.combination(point)).key(self.seed(point))
    }
}
