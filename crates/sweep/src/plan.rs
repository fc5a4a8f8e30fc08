// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The points of a sweep and their keys.
use crate::key::Content;
use crate::spec::Sweep;
use plimsoll_scenario::{Problem, Problems};
use rayon::prelude::*;

/// Problems that are shown: one value may be wrong in thousands of combinations.
const SHOWN: usize = 20;

/// A sweep every combination of which is a scenario.
pub struct Plan {
    pub sweep: Sweep,
    contents: Vec<Content>,
}

impl Plan {
    /// Reads the scenario of each combination; what is wrong with them is said at once and before anything is run.
    /// `version`: of the program.
    pub fn new(sweep: Sweep, version: &str) -> Result<Self, Problems> {
        let content = |combination| Ok(Content::new(&sweep.scenario(combination)?, version));
        let all: Vec<Result<Content, Problems>> = sweep.combinations.par_iter().map(content).collect();
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
            true => Ok(Plan { sweep, contents }),
            false => Err(Problems::sorted(problems)),
        }
    }

    pub fn points(&self) -> u64 {
        self.sweep.points()
    }

    /// The number of a point's combination.
    pub fn combination(&self, point: u64) -> usize {
        (point / self.sweep.seeds.len() as u64) as usize
    }

    pub fn seed(&self, point: u64) -> u64 {
        self.sweep.seeds[(point % self.sweep.seeds.len() as u64) as usize]
    }

    pub fn key(&self, point: u64) -> String {
        self.contents[self.combination(point)].key(self.seed(point))
    }
}
