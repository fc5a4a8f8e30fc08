// SPDX-License-Identifier: Apache-2.0 OR MIT
//! bandwidth.h against a slow, obvious reference: the specification's sentences, one after the other, on plain
//! vectors. Every number of both must agree after every step of many random histories.

use crate::common::*;
use plimsoll_policy_sys::*;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;

const KEPT: i64 = 1_000_000;
const TURN: i64 = 200_000;
const MAX: u64 = ((1 << 44) - 1) * 1000;

struct Reference {
    quota: u64,
    period: u64,
    buffer: u64,
    pool: i64,
    next: u64,
    snapshot: i64,
    remaining: Vec<i64>,
    from_refill: Vec<u64>,
    refills: u64,
    throttled: VecDeque<(usize, u64)>,
    /// Whether a task was runnable on a CPU as its balance was last used up, and has not left since.
    waits: Vec<bool>,
    timer_active: bool,
    idle: bool,
    nr_periods: u64,
    nr_throttled: u64,
    nr_bursts: u64,
    burst_ns: u64,
    throttled_ns: u64,
    config: BwConfig,
}

impl Reference {
    fn new(cpus: usize, config: BwConfig) -> Self {
        Reference {
            quota: UNLIMITED,
            period: 100 * MS,
            buffer: MAX,
            pool: 0,
            next: 0,
            snapshot: 0,
            remaining: vec![0; cpus],
            from_refill: vec![0; cpus],
            refills: 0,
            throttled: VecDeque::new(),
            waits: vec![false; cpus],
            timer_active: false,
            idle: false,
            nr_periods: 0,
            nr_throttled: 0,
            nr_bursts: 0,
            burst_ns: 0,
            throttled_ns: 0,
            config,
        }
    }

    fn set(&mut self, quota: u64, period: u64, burst: u64, onset: u32, now: u64) {
        self.quota = quota;
        self.period = period;
        self.buffer = (quota + burst).min(MAX);
        self.next = (now / period + 1) * period;
        let granted = if self.config.mainline == 1 || self.config.burst_off == 1 || self.config.expire == 1 {
            0
        } else {
            (burst as u128 * onset as u128 / 100) as u64
        };
        self.pool = (quota + granted).min(self.buffer) as i64;
        self.snapshot = self.pool;
        self.refills += 1;
        self.idle = false;
        for cpu in 0..self.remaining.len() {
            self.remaining[cpu] = 0;
            self.from_refill[cpu] = self.refills;
        }
        while let Some((_, since)) = self.throttled.pop_front() {
            self.throttled_ns += now - since;
        }
    }

    fn refill(&mut self, elapsed: u64) {
        let times = if self.config.mainline == 1 {
            1
        } else {
            elapsed.min(MAX.div_ceil(self.quota))
        };
        let earned = self.quota as i128 * times as i128;
        let above = self.snapshot as i128 - self.pool as i128 - earned;
        if above > 0 {
            self.nr_bursts += 1;
            self.burst_ns += above as u64;
        }
        let cap = if self.config.burst_off == 1 {
            self.quota
        } else {
            self.buffer
        };
        self.pool = if self.config.expire == 1 {
            self.quota as i64
        } else {
            (self.pool as i128 + earned).min(cap as i128) as i64
        };
        self.snapshot = self.pool;
        self.refills += 1;
    }

    fn charge(&mut self, cpu: usize, delta: u64, runnable: bool, now: u64) -> bool {
        self.remaining[cpu] -= delta as i64;
        if self.config.expire == 1 && self.from_refill[cpu] != self.refills {
            self.from_refill[cpu] = self.refills;
            self.remaining[cpu] = self.remaining[cpu].min(0);
        }
        if self.remaining[cpu] > 0 {
            return false;
        }
        self.waits[cpu] = runnable;
        if self.throttled.iter().any(|&(c, _)| c == cpu) {
            return true;
        }
        if !self.timer_active {
            self.timer_active = true;
            if now >= self.next {
                let elapsed = (now - self.next) / self.period + 1;
                self.next += elapsed * self.period;
                if self.config.mainline == 0 || self.config.expire == 1 {
                    self.refill(elapsed);
                }
            }
        }
        let debt = -self.remaining[cpu];
        let want = if runnable {
            self.config.slice_ns as i64 + debt
        } else {
            1 + debt
        };
        let got = want.min(self.pool);
        if got > 0 {
            self.pool -= got;
            self.remaining[cpu] += got;
            self.from_refill[cpu] = self.refills;
            self.idle = false;
        }
        if self.remaining[cpu] <= 0 {
            self.throttled.push_back((cpu, now));
            return true;
        }
        false
    }

    fn leave(&mut self, cpu: usize) {
        self.waits[cpu] = false;
        let back = self.remaining[cpu] - KEPT;
        if back > 0 {
            self.remaining[cpu] = KEPT;
            if self.config.expire == 0 || self.from_refill[cpu] == self.refills {
                self.pool += back;
            }
        }
    }

    fn distribute(&mut self, now: u64) -> Vec<u32> {
        let mut released = Vec::new();
        while let Some(&(cpu, since)) = self.throttled.front() {
            let part = (self.pool / self.throttled.len() as i64).max(TURN);
            let mut need = 1 - self.remaining[cpu];
            if self.waits[cpu] && self.config.mainline == 0 && self.config.expire == 0 {
                need = need.max(part.min(self.config.slice_ns as i64));
            }
            let got = need.min(self.pool);
            self.pool -= got;
            self.remaining[cpu] += got;
            if got > 0 {
                self.from_refill[cpu] = self.refills;
            }
            if self.remaining[cpu] <= 0 {
                break;
            }
            self.throttled.pop_front();
            self.throttled_ns += now - since;
            released.push(cpu as u32);
        }
        released
    }

    fn period(&mut self, now: u64) -> Vec<u32> {
        if now < self.next {
            return self.distribute(now);
        }
        let elapsed = (now - self.next) / self.period + 1;
        self.next += elapsed * self.period;
        self.nr_periods += elapsed;
        let throttled = !self.throttled.is_empty();
        self.refill(elapsed);
        if throttled {
            self.nr_throttled += elapsed;
            self.idle = false;
        } else if self.idle {
            self.timer_active = false;
        } else {
            self.idle = true;
        }
        self.distribute(now)
    }
}

fn compare(reference: &Reference, bench: &Bench, seed: u64, step: usize) {
    let place = format!("seed {seed}, step {step}");
    let pool = &bench.pool;
    assert_eq!(pool.runtime_ns, reference.pool, "pool, {place}");
    assert_eq!(pool.next_ns, reference.next, "period end, {place}");
    for (cpu, balance) in bench.balances.iter().enumerate() {
        assert_eq!(
            balance.remaining_ns, reference.remaining[cpu],
            "balance of CPU {cpu}, {place}"
        );
        let throttled = reference.throttled.iter().any(|&(c, _)| c == cpu);
        assert_eq!(
            balance.throttled == 1,
            throttled,
            "throttled on CPU {cpu}, {place}"
        );
    }
    assert_eq!(pool.nr_periods, reference.nr_periods, "nr_periods, {place}");
    assert_eq!(pool.nr_throttled, reference.nr_throttled, "nr_throttled, {place}");
    assert_eq!(
        pool.throttled_ns as u64, reference.throttled_ns,
        "throttled_ns, {place}"
    );
    assert_eq!(pool.nr_bursts, reference.nr_bursts, "nr_bursts, {place}");
    assert_eq!(pool.burst_ns_used, reference.burst_ns, "burst time, {place}");
    assert_eq!(
        pool.timer_active == 1,
        reference.timer_active,
        "period timer, {place}"
    );
}

fn random_history(seed: u64) {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let cpus = rng.random_range(1..=12usize);
    let config = BwConfig {
        slice_ns: [5 * MS, MS, 1_000, 20 * MS][rng.random_range(0..4)],
        expire: rng.random_bool(0.2) as u32,
        burst_off: rng.random_bool(0.1) as u32,
        mainline: rng.random_bool(0.3) as u32,
        reserved: 0,
    };
    let mut bench = Bench::new(cpus as u32, config);
    let mut reference = Reference::new(cpus, config);
    let mut now = rng.random_range(0..500 * MS);
    for step in 0..400 {
        if step == 0 || rng.random_bool(0.01) {
            let quota = rng.random_range(MS..200 * MS);
            let period = rng.random_range(MS..=1000 * MS);
            let burst = if config.mainline == 1 {
                rng.random_range(0..=quota)
            } else {
                rng.random_range(0..4 * quota)
            };
            let onset = rng.random_range(0..=100);
            bench.set(quota, period, burst, onset, now);
            reference.set(quota, period, burst, onset, now);
        } else {
            let cpu = rng.random_range(0..cpus);
            match rng.random_range(0..10) {
                0..=5 => {
                    let delta = if rng.random_bool(0.2) {
                        0
                    } else {
                        rng.random_range(0..8 * MS)
                    };
                    now += delta / cpus as u64;
                    let runnable = rng.random_bool(0.8);
                    let throttled = bench.charge(cpu, delta, runnable, now) & BW_THROTTLED != 0;
                    assert_eq!(
                        throttled,
                        reference.charge(cpu, delta, runnable, now),
                        "verdict, seed {seed}, step {step}"
                    );
                }
                6 | 7 => {
                    bench.leave(cpu, now);
                    reference.leave(cpu);
                }
                8 => {
                    let skip = rng.random_range(0..3) * reference.period;
                    now = now.max(reference.next + skip);
                    if reference.timer_active {
                        assert_eq!(
                            bench.period(now),
                            reference.period(now),
                            "released, seed {seed}, step {step}"
                        );
                    }
                }
                _ => {
                    let released = bench.slack(now);
                    let worth = now + 2 * MS <= reference.next
                        && reference.pool > config.slice_ns as i64
                        && !reference.throttled.is_empty();
                    let expected = if worth {
                        reference.distribute(now)
                    } else {
                        Vec::new()
                    };
                    assert_eq!(released, expected, "slack, seed {seed}, step {step}");
                }
            }
        }
        compare(&reference, &bench, seed, step);
    }
}

#[test]
fn bandwidth_does_what_the_specification_says_in_random_histories() {
    for seed in 0..3000 {
        random_history(seed);
    }
}
