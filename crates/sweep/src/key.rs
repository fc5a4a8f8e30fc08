// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The name of a point by its content.
use plimsoll_scenario::Scenario;
use sha2::{Digest, Sha256};

/// What a run depends on but its seed, as a digest.
#[derive(Clone, Copy)]
pub struct Content([u8; 32]);

impl Content {
    /// Of the scenario as it is simulated: neither its file's name and comments nor the way in which a value was set
    /// count, and the machine's model does. `version`: of the program; another may give other results.
    pub fn new(scenario: &Scenario, version: &str) -> Self {
        let mut meant = scenario.clone();
        meant.name.clear();
        meant.settings.clear();
        meant.description.clear();
        meant.seed = 0;
        Content::of(&[version.as_bytes(), format!("{meant:?}").as_bytes()])
    }

    /// Of parts of any length.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Content(digest.finalize().into())
    }

    /// The key of a point: 32 hexadecimal digits.
    pub fn key(&self, seed: u64) -> String {
        hex(Sha256::new_with_prefix(self.0).chain_update(seed.to_le_bytes()))
    }
}

/// The first 128 bits of a digest: among 10 million points two are the same with a probability of 1e-25.
pub(crate) fn hex(digest: Sha256) -> String {
    let bytes = digest.finalize();
    bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
