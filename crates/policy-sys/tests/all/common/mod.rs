// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pool with its balances and its ring, on memory that does not move.
#![allow(dead_code)] // each test binary uses its part of this
use plimsoll_policy_sys::*;

pub const MS: u64 = 1_000_000;

pub struct Bench {
    pub pool: Box<Pool>,
    pub balances: Vec<Balance>,
    _ring: Vec<u32>,
    pub config: BwConfig,
}

impl Bench {
    /// A pool without limit on `cpus` CPUs.
    pub fn new(cpus: u32, config: BwConfig) -> Self {
        let slots = cpus.next_power_of_two();
        let mut bench = Bench {
            pool: Box::new(zeroed()),
            balances: vec![zeroed(); cpus as usize],
            _ring: vec![0; slots as usize],
            config,
        };
        // SAFETY: the vectors are as long as said and are never resized.
        unsafe {
            pl_bw_init(
                &mut *bench.pool,
                bench.balances.as_mut_ptr(),
                cpus,
                bench._ring.as_mut_ptr(),
                slots,
            )
        };
        bench
    }

    pub fn set(&mut self, quota_ns: u64, period_ns: u64, burst_ns: u64, onset_percent: u32, now_ns: u64) {
        let limits = BwLimits {
            quota_ns,
            period_ns,
            burst_ns,
            onset_percent,
            reserved: 0,
        };
        // SAFETY: memory of `new`.
        unsafe {
            assert_eq!(pl_bw_check(&limits, false, self.config.mainline != 0), BW_OK);
            pl_bw_set(&mut *self.pool, &limits, 0, now_ns, &self.config);
        }
        self.release_all(now_ns);
    }

    pub fn charge(&mut self, cpu: usize, delta_ns: u64, runnable: bool, now_ns: u64) -> u32 {
        // SAFETY: memory of `new`.
        unsafe {
            pl_bw_charge(
                &mut *self.pool,
                &mut self.balances[cpu],
                delta_ns,
                runnable,
                now_ns,
                &self.config,
            )
        }
    }

    pub fn leave(&mut self, cpu: usize, now_ns: u64) -> u32 {
        // SAFETY: memory of `new`.
        unsafe { pl_bw_leave(&mut *self.pool, &mut self.balances[cpu], now_ns, &self.config) }
    }

    /// The period timer's callback, as an engine does it. Returns the CPUs released.
    pub fn period(&mut self, now_ns: u64) -> Vec<u32> {
        // SAFETY: memory of `new`.
        unsafe { pl_bw_period(&mut *self.pool, now_ns, 1, &self.config) };
        self.distribute(now_ns)
    }

    pub fn slack(&mut self, now_ns: u64) -> Vec<u32> {
        // SAFETY: memory of `new`.
        if unsafe { pl_bw_slack(&mut *self.pool, now_ns, &self.config) } {
            self.distribute(now_ns)
        } else {
            Vec::new()
        }
    }

    pub fn distribute(&mut self, now_ns: u64) -> Vec<u32> {
        let mut released = Vec::new();
        // SAFETY: memory of `new`; a balance returned is one of `balances`.
        unsafe {
            assert!(
                pl_bw_distribute_begin(&mut *self.pool),
                "one distributor at a time, and it ends"
            );
            loop {
                let balance = pl_bw_distribute_next(&mut *self.pool, now_ns, &self.config);
                if balance.is_null() {
                    break;
                }
                released.push((*balance).cpu);
            }
            pl_bw_distribute_end(&mut *self.pool);
        }
        released
    }

    pub fn release_all(&mut self, now_ns: u64) -> u32 {
        let mut released = 0;
        // SAFETY: memory of `new`.
        unsafe {
            assert!(pl_bw_distribute_begin(&mut *self.pool));
            while !pl_bw_release_next(&mut *self.pool, now_ns).is_null() {
                released += 1;
            }
            pl_bw_distribute_end(&mut *self.pool);
        }
        released
    }
}

pub fn published() -> BwConfig {
    BwConfig {
        slice_ns: 5 * MS,
        expire: 0,
        burst_off: 0,
        mainline: 0,
        reserved: 0,
    }
}

pub fn mainline() -> BwConfig {
    BwConfig {
        mainline: 1,
        ..published()
    }
}
