// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points that are simulations of a scenario.
use crate::grid::Grid;
use crate::key::Content;
use crate::points::{Points, Runner};
use crate::row::simulate;
use crate::spec::Sweep;
use plimsoll_scenario::{Problem, Problems};
use rayon::prelude::*;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Problems that are shown: one value may be wrong in thousands of combinations.
const SHOWN: usize = 20;

/// A sweep every combination of which is a scenario.
pub struct Simulations {
    sweep: Sweep,
    contents: Vec<Content>,
}

impl Simulations {
    /// Reads the scenario of each combination; what is wrong with them is said at once and before anything is run.
    /// `version`: of the program.
    pub fn new(sweep: Sweep, version: &str) -> Result<Self, Problems> {
        let content = |combination| Ok(Content::new(&sweep.scenario(combination)?, version));
        let all: Vec<Result<Content, Problems>> = sweep.grid.combinations.par_iter().map(content).collect();
        let mut contents = Vec::with_capacity(all.len());
        let mut problems: Vec<Problem> = Vec::new();
        for one in all {
            match one {
                Ok(content) => contents.push(content),
                Err(Problems(those)) => {
                    for one in those {
                        // Many combinations have the value that stands there.
                        if !problems
                            .iter()
                            .any(|known| (&known.place, &known.path) == (&one.place, &one.path))
                        {
                            problems.push(one);
                        }
                    }
                    if problems.len() >= SHOWN {
                        break;
                    }
                }
            }
        }
        match problems.is_empty() {
            true => Ok(Simulations { sweep, contents }),
            false => Err(Problems::sorted(problems)),
        }
    }
}

impl Points for Simulations {
    fn grid(&self) -> &Grid {
        &self.sweep.grid
    }

    fn content(&self, combination: usize) -> Content {
        self.contents[combination]
    }

    fn side_by_side(&self) -> bool {
        true
    }

    fn runner(&self, combination: usize, _: &Arc<AtomicBool>) -> Runner<'_> {
        let scenario = self.sweep.scenario(&self.sweep.grid.combinations[combination]);
        let scenario = scenario.expect("it was one when the points were made");
        Box::new(move |seed, stop| {
            let mut own = scenario.clone();
            own.seed = seed;
            simulate(&own, stop)
        })
    }
}
