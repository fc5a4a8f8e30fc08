// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Burst above the quota, which the kernel refuses: what a group saved is lent to it by a higher quota. The account is
//! policy's (bandwidth.h, lend.h); here it gets the time and what the group has used.
use plimsoll_policy_sys as pl;

/// The policy's own smallest slice: the pool holds all but that, and what the group may use is known to it.
const CONFIG: pl::BwConfig = pl::BwConfig {
    slice_ns: 1_000,
    expire: 0,
    burst_off: 0,
    mainline: 0,
    reserved: 0,
};

/// Looks in a period while the group uses more than its quota, and while it does not: between two of them the kernel refills at
/// most once.
const LOOKS_BUSY: u64 = 10;
const LOOKS_CALM: u64 = 1;

/// A quota is raised by a single one of lend.h's steps only where the group has not run for so long: of what runs a little now
/// and then it would be rewritten each time.
const STEP_UP_AFTER_NS: u64 = 2_000_000_000;

/// What a loan is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub quota_us: u64,
    pub period_us: u64,
    pub burst_us: u64,
    pub onset_percent: u32,
}

pub struct Loan {
    pub terms: Terms,
    pool: Box<pl::Pool>,
    balance: Box<pl::Balance>,
    /// The pool has its address.
    _ring: Box<[u32; 1]>,
    usage_us: u64,
    /// When it was last looked at, and the quota that it had from then.
    looked: Option<(u64, u64)>,
    /// When it was last seen that it had run.
    ran_ns: u64,
    pub due_ns: u64,
}

impl Loan {
    pub fn new(terms: Terms, usage_us: u64, now_ns: u64) -> Self {
        let mut loan = Self {
            terms,
            pool: Box::new(pl::zeroed()),
            balance: Box::new(pl::zeroed()),
            _ring: Box::new([0]),
            usage_us,
            looked: None,
            ran_ns: now_ns,
            due_ns: now_ns,
        };
        let limits = pl::BwLimits {
            quota_ns: terms.quota_us * 1000,
            period_ns: terms.period_us * 1000,
            burst_ns: terms.burst_us * 1000,
            onset_percent: terms.onset_percent,
            reserved: 0,
        };
        // SAFETY: pool, balance and ring live as long as the loan, at the same place.
        unsafe {
            pl::pl_bw_init(&mut *loan.pool, &mut *loan.balance, 1, loan._ring.as_mut_ptr(), 1);
            pl::pl_bw_set(&mut *loan.pool, &limits, now_ns, now_ns, &CONFIG);
        }
        loan
    }

    /// The quota until the next look, which is due at `due_ns`: at a multiple of the time between two looks, so that one wake-up
    /// does for all loans with the same period.
    pub fn look(&mut self, usage_us: u64, now_ns: u64) -> u64 {
        if let Some((_, quota_us)) = self.looked.filter(|(at_ns, _)| *at_ns == now_ns) {
            return quota_us;
        }
        let used_us = usage_us.saturating_sub(self.usage_us);
        self.usage_us = usage_us;
        if used_us > 0 {
            self.ran_ns = now_ns;
        }
        let (pool, balance): (*mut pl::Pool, *mut pl::Balance) = (&mut *self.pool, &mut *self.balance);
        // SAFETY: as above; the policy has no other pointers to them.
        let quota_ns = unsafe {
            pl::pl_bw_charge(pool, balance, used_us * 1000, true, now_ns, &CONFIG);
            // Also where the policy's timer rests: what a sleeping group earns is lent before it wakes.
            if now_ns >= (*pool).next_ns {
                pl::pl_bw_period(pool, now_ns, 1, &CONFIG);
            }
            if pl::pl_bw_distribute_begin(pool) {
                while !pl::pl_bw_distribute_next(pool, now_ns, &CONFIG).is_null() {}
                pl::pl_bw_distribute_end(pool);
            }
            pl::pl_lend_quota(pool, balance)
        };
        let since_ns = now_ns - self.looked.map_or(now_ns, |(at_ns, _)| at_ns.min(now_ns));
        let due_ns =
            u128::from(self.terms.quota_us) * u128::from(since_ns) / u128::from(self.terms.period_us);
        let looks = match u128::from(used_us) * 1000 > due_ns {
            true => LOOKS_BUSY,
            false => LOOKS_CALM,
        };
        let between_ns = self.terms.period_us * 1000 / looks;
        self.due_ns = (now_ns / between_ns + 1) * between_ns;
        let mut quota_us = quota_ns / 1000;
        let before_us = self.lent_us();
        let two_steps_us = (self.terms.burst_us / 8).max(2_000);
        let is_step_up = quota_us > before_us && quota_us - before_us < two_steps_us;
        if is_step_up && self.looked.is_some() && now_ns < self.ran_ns + STEP_UP_AFTER_NS {
            quota_us = before_us;
        }
        self.looked = Some((now_ns, quota_us));
        quota_us
    }

    /// The quota of the last look.
    pub fn lent_us(&self) -> u64 {
        self.looked.map_or(self.terms.quota_us, |(_, quota_us)| quota_us)
    }

    /// What is saved, the quota of the present period included; negative: it has used more than it had.
    pub fn have_us(&self) -> i64 {
        (self.pool.runtime_ns + self.balance.remaining_ns) / 1000
    }

    /// Periods that used more than the quota, and the time above it.
    pub fn bursts(&self) -> (u64, u64) {
        (self.pool.nr_bursts, self.pool.burst_ns_used / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        quota_us: 30_000,
        period_us: 100_000,
        burst_us: 100_000,
        onset_percent: 0,
    };
    const MS: u64 = 1_000_000;

    #[test]
    fn what_a_sleep_saves_is_lent_up_to_the_buffer_and_taken_back_as_it_is_used() {
        let mut loan = Loan::new(TERMS, 0, 0);
        assert_eq!(loan.look(0, MS), 30_000);
        // Steps of 100 ms / 16, rounded down.
        assert_eq!(loan.look(0, 101 * MS), 30_000 + 4 * 6_250);
        assert_eq!(loan.look(0, 1_001 * MS), 130_000);
        assert_eq!(
            loan.look(50_000, 1_050 * MS),
            30_000 + 8 * 6_250,
            "80 ms are left"
        );
        assert_eq!(loan.look(125_000, 1_090 * MS), 30_000);
        // Used more than it had: the owner's quota stays, and is saved for only after the debt.
        assert_eq!(loan.look(160_000, 1_099 * MS), 30_000);
        // Beside the pool the balance keeps the smallest slice, 1 us.
        assert!((-30_000..=-29_999).contains(&loan.have_us()));
        assert_eq!(loan.look(160_000, 1_201 * MS), 30_000);
        // Two periods have ended, at 1.1 and 1.2 s.
        assert!((30_000..=30_001).contains(&loan.have_us()));
        assert!(loan.look(160_000, 1_301 * MS) > 30_000);
    }

    #[test]
    fn the_onset_is_lent_at_once_and_what_keeps_to_its_quota_is_looked_at_seldom() {
        let mut loan = Loan::new(
            Terms {
                onset_percent: 50,
                ..TERMS
            },
            5,
            0,
        );
        assert_eq!(loan.look(5, MS), 80_000);
        assert_eq!(loan.look(5, MS), 80_000, "the same look");
        assert_eq!(loan.due_ns, 100 * MS);
        loan.look(30_000, 101 * MS);
        assert_eq!(loan.due_ns, 200 * MS);
        loan.look(64_000, 201 * MS);
        assert_eq!(loan.due_ns, 210 * MS);
        loan.look(65_000, 210 * MS);
        assert_eq!(loan.due_ns, 300 * MS);
    }

    #[test]
    fn a_quota_is_lowered_at_once_and_raised_by_a_single_step_after_a_rest() {
        let mut loan = Loan::new(TERMS, 0, 0);
        loan.look(0, MS);
        assert_eq!(loan.look(0, 1_001 * MS), 130_000);
        // From then on it uses a little now and then, which it has saved again by the end of the period.
        let held_us = 30_000 + 15 * 6_250;
        assert_eq!(loan.look(300, 1_010 * MS), held_us);
        for period in 11..30 {
            let at_ns = period * 100 * MS;
            assert_eq!(loan.look(300 * (period - 9), at_ns + MS), held_us);
            assert_eq!(
                loan.look(300 * (period - 9), at_ns + 90 * MS),
                held_us,
                "full again"
            );
        }
        assert_eq!(loan.look(6_000, 4_800 * MS), held_us);
        assert_eq!(loan.look(6_000, 4_902 * MS), 130_000);
    }
}
