// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A part of a sweep's points that one of several machines runs.
use std::str::FromStr;

/// Every `of`th point, from the one at `index` on: neighbours, which take as long as each other, go to different machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub index: u64,
    pub of: u64,
}

impl Shard {
    /// Of all points.
    pub const WHOLE: Shard = Shard { index: 0, of: 1 };

    pub fn has(self, point: u64) -> bool {
        point % self.of == self.index
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, of)| {
            let shard = Shard {
                index: index.parse().ok()?,
                of: of.parse().ok()?,
            };
            (shard.index < shard.of && shard.of <= 1_000_000).then_some(shard)
        });
        parts.ok_or_else(|| "allowed: I/N, as in 0/8: N from 1 to 1000000, I from 0 to N - 1".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_in_one_shard() {
        let shards: Vec<Shard> = ["0/3", "1/3", "2/3"].map(|text| text.parse().unwrap()).into();
        for point in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.has(point)).count(), 1);
        }
        for bad in ["3/3", "1", "0/0", "-1/2", "1/2/3", ""] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
