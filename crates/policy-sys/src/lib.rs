// SPDX-License-Identifier: Apache-2.0 OR MIT
//! policy/ for Rust: the same C that BPF compiles, built natively.
//!
//! Invariant: no scheduling rule is written here. Types mirror the headers, functions are the headers', and
//! tests/all/layout.rs holds the two together.
mod functions;
mod limits;
mod types;

pub use functions::*;
pub use limits::BwPart;
pub use types::*;

/// No limit, in `quota_ns`.
pub const UNLIMITED: u64 = u64::MAX;

// enum pl_bw_flags
pub const BW_THROTTLED: u32 = 1;
pub const BW_ARM_PERIOD: u32 = 2;
pub const BW_ARM_SLACK: u32 = 4;

// enum pl_place
pub const PLACE_WAKER: u32 = 0;
pub const PLACE_KEPT: u32 = 1;
pub const PLACE_CACHE: u32 = 2;
pub const PLACE_ELSEWHERE: u32 = 3;
pub const PLACE_IDLE_WORK: u32 = 4;
pub const PLACE_BEHIND: u32 = 5;
pub const PLACES: usize = 6;
pub const PLACE_SYNC_WAIT_NS: u64 = 200_000;

// enum pl_bw_error
pub const BW_OK: u32 = 0;
pub const BW_ERR_ROOT: u32 = 1;
pub const BW_ERR_QUOTA: u32 = 2;
pub const BW_ERR_PERIOD: u32 = 3;
pub const BW_ERR_BURST: u32 = 4;
pub const BW_ERR_ONSET: u32 = 5;

pub const SPARSEMASK_NONE: u32 = u32::MAX;
/// From a return of run time to its hand-out.
pub const BW_SLACK_DELAY_NS: u64 = 5_000_000;
/// One runnable task, in averages that balance.h compares.
pub const BALANCE_ONE: u32 = 1024;
/// Effective weight of a lone task of nice 0.
pub const FAIR_WEIGHT_ONE: u64 = 1024 << 10;
/// Bits of fraction of runnable weights and shares.
pub const LOAD_SHIFT: u32 = 10;
/// Bits of fraction of what a queue weighs on its CPU.
pub const EFFECTIVE_SHIFT: u32 = 20;
/// What the queue of a group of weight 100 weighs where it has all of its share.
pub const EFFECTIVE_ONE: u64 = 1024 << EFFECTIVE_SHIFT;
pub const GROUP_DEPTH_MAX: u32 = 32;

// What an engine configures by default.
pub const BW_SLICE_NS: u64 = 5_000_000;
pub const BW_QUOTA_MIN_NS: u64 = 1_000_000;
/// The number of the domain of what may run anywhere: policy/domain.h.
pub const DOMAIN_REST: u32 = 0;
pub const LOAD_PUBLISH_NS: u64 = 1_000_000;
pub const FAIR_SLICE_NS: u64 = 3_000_000;
pub const CFS_WAKEUP_GRAN_NS: u64 = 4_000_000;
pub const FAIR_WAIT_MAX_NS: u64 = 10_000_000_000;
pub const FAIR_PULL_NS: u64 = 10_000_000;
pub const FAIR_LAG_MAX_NS: u64 = 100_000_000;
pub const REFRESH_NS: u64 = 1_000_000;
/// Queued tasks, the running one included, with which a CPU counts as overloaded.
pub const STEAL_OVERLOADED: u32 = 2;
pub const STEAL_NODE_LIMIT: u32 = 1024;
pub const STEAL_COST_NS: u64 = 10_000;
pub const HEADROOM_WINDOW_NS: u64 = 100_000_000;
pub const HEADROOM_TOLERANCE_NS: u64 = 1_000_000;
pub const HEADROOM_STEPS: u32 = 20;
pub const HEADROOM_SLICE_NS: u64 = 500_000;

impl Default for FairConfig {
    fn default() -> Self {
        Self {
            slice_ns: FAIR_SLICE_NS,
            latency_ns: 0,
            sleeper_credit_ns: FAIR_SLICE_NS,
            wakeup_gran_ns: CFS_WAKEUP_GRAN_NS,
            wait_max_ns: FAIR_WAIT_MAX_NS,
            pull_ns: FAIR_PULL_NS,
            lag_max_ns: FAIR_LAG_MAX_NS,
            as_kernel: 0,
            doubled_ns: 0,
        }
    }
}

extern "C" {
    fn pl_layout(index: u32) -> u64;
}

/// Size or offset number `index` of what the C compiler laid out; `u64::MAX` past the end.
pub fn layout(index: u32) -> u64 {
    // SAFETY: takes a number, reads a constant table with a bounds check.
    unsafe { pl_layout(index) }
}

/// A struct of the policy.
///
/// # Safety
/// Zero is a value of it: it holds integers and raw pointers only.
pub unsafe trait Zeroed: Copy {}

macro_rules! of_integers_and_pointers {
    ($c:ident, $name:ident, $($field:ident),*) => {
        // SAFETY: tests/all/layout.rs holds it against a struct of C, which has nothing else.
        unsafe impl Zeroed for $name {}
    };
}
for_each_struct!(of_integers_and_pointers);

// SAFETY: an integer.
unsafe impl Zeroed for u32 {}

/// A value whose every byte is zero, which is how the policy's structs begin.
///
/// ```compile_fail
/// let nothing: &u64 = plimsoll_policy_sys::zeroed();
/// ```
pub fn zeroed<T: Zeroed>() -> T {
    // SAFETY: zero is a value of it.
    unsafe { std::mem::zeroed() }
}
