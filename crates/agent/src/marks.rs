// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the agent's values are told from an owner's: they are odd, which an owner hardly writes.

/// Quotas of the agent's are odd numbers, which an owner hardly writes: so the owner's are told from them.
pub(crate) fn marked(quota_us: u64, owners_us: u64) -> u64 {
    match quota_us.saturating_sub(1) | 1 {
        odd if odd <= quota_us && odd > owners_us => odd,
        _ if quota_us % 2 == 1 => quota_us,
        _ => owners_us.max(quota_us.saturating_sub(1)),
    }
}

/// Likewise a burst: at most 1 us less, or 1 us where the owner has one and is to have none.
pub(crate) fn marked_burst(burst_us: u64, owners_us: Option<u64>) -> u64 {
    match owners_us {
        Some(owners_us) if owners_us == burst_us => burst_us,
        _ if burst_us == 0 => 1,
        _ => burst_us.saturating_sub(1) | 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_quota_is_odd_and_neither_looser_nor_tighter_than_the_owners() {
        for quota_us in 1_001..1_200 {
            let marked = marked(quota_us, 1_000);
            assert!(
                marked % 2 == 1 && marked <= quota_us && marked > quota_us - 2,
                "{quota_us}: {marked}"
            );
        }
        assert_eq!(marked(30_000, 30_000), 30_000);
        assert_eq!(marked(30_001, 30_000), 30_001);
        assert_eq!(marked(30_001, 30_001), 30_001);
    }
}
