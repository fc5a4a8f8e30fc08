// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy's memory: groups, their queues and balances on each CPU, their rings.
//!
//! Indexed [group][CPU], allocated zeroed and touched only where a group has run, so that the system commits pages for
//! groups x CPUs used and not for groups x CPUs.
use super::lines::Line;
use plimsoll_policy_sys as pl;
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::ptr::NonNull;

/// Zeroed memory for `n` values, without touching it. For types whose every byte may be zero.
pub(super) struct ZeroedArray<T: Copy> {
    memory: NonNull<u8>,
    first: NonNull<T>,
    n: usize,
}

/// Memory that is aligned to more the system's allocator zeroes by writing it.
const UNTOUCHED_ALIGN: usize = 16;

// SAFETY: owns plain values; raw pointers in them point into arrays owned by the same engine.
unsafe impl<T: Copy> Send for ZeroedArray<T> {}

impl<T: Copy> ZeroedArray<T> {
    pub fn new(n: usize) -> Self {
        let layout = Self::layout(n);
        // SAFETY: layout() never has size 0.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: layout() has room for what this skips.
        let first = unsafe { memory.add(memory.align_offset(align_of::<T>())) }.cast();
        Self { memory, first, n }
    }

    fn layout(n: usize) -> Layout {
        let array = Layout::array::<T>(n.max(1)).ok();
        let layout = array.and_then(|array| {
            Layout::from_size_align(array.size() + array.align(), array.align().min(UNTOUCHED_ALIGN)).ok()
        });
        layout.expect("groups x CPUs fits the address space")
    }

    #[inline]
    pub fn at(&self, i: usize) -> *mut T {
        debug_assert!(i < self.n);
        // SAFETY: i < n, within one allocation.
        unsafe { self.first.as_ptr().add(i) }
    }
}

impl<T: Copy> Drop for ZeroedArray<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in new() with the same layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.n)) }
    }
}

/// When the shares of a queue that was never used were brought up to date: so far before or after any time that they
/// are stale.
const NEVER_NS: u64 = 1 << 63;

/// Reached through raw pointers only: C keeps pointers between these arrays.
pub(super) struct Memory {
    pub nr_cpus: usize,
    /// The root, the configured ones, then headroom's side group.
    pub nr_groups: usize,
    groups: ZeroedArray<pl::Group>,
    queues: ZeroedArray<pl::Queue>,
    /// Only where weights are times tasks.
    crowds: Option<ZeroedArray<pl::Load>>,
    balances: ZeroedArray<pl::Balance>,
    _rings: ZeroedArray<u32>,
    /// First task parked by a group's throttling on a CPU, plus one.
    parked: ZeroedArray<u32>,
    /// A CPU's latest version of a group's two shared lines.
    load_seen: ZeroedArray<u32>,
    pool_seen: ZeroedArray<u32>,
    pub load_lines: Vec<Line>,
    pub pool_lines: Vec<Line>,
}

impl Memory {
    /// `parents[i]` is the parent of group i; the root's and the side group's is `None`.
    /// With `crowds` groups count their tasks.
    pub fn new(parents: &[Option<u32>], nr_cpus: usize, crowds: bool) -> Self {
        let nr_groups = parents.len();
        let slots = nr_cpus.next_power_of_two();
        let cells = nr_groups * nr_cpus;
        let memory = Self {
            nr_cpus,
            nr_groups,
            groups: ZeroedArray::new(nr_groups),
            queues: ZeroedArray::new(cells),
            crowds: crowds.then(|| ZeroedArray::new(cells)),
            balances: ZeroedArray::new(cells),
            _rings: ZeroedArray::new(nr_groups * slots),
            parked: ZeroedArray::new(cells),
            load_seen: ZeroedArray::new(cells),
            pool_seen: ZeroedArray::new(cells),
            load_lines: vec![Line::default(); nr_groups],
            pool_lines: vec![Line::default(); nr_groups],
        };
        for (group, parent) in parents.iter().enumerate() {
            let parent = parent.map_or(std::ptr::null_mut(), |p| memory.group(p));
            // SAFETY: all arrays are allocated and zeroed. No CPU is initialised here (nr_cpus 0): `touch` does
            // that when a group first uses one, so that the others' pages stay untouched.
            unsafe {
                pl::pl_group_init(
                    memory.group(group as u32),
                    parent,
                    group as u64,
                    memory.queues.at(group * nr_cpus),
                    memory.balances.at(group * nr_cpus),
                    0,
                    memory._rings.at(group * slots),
                    slots as u32,
                );
                (*memory.group(group as u32)).pool.nr_cpus = nr_cpus as u32;
                if let Some(crowds) = &memory.crowds {
                    (*memory.group(group as u32)).crowds = crowds.at(group * nr_cpus);
                }
            }
        }
        memory
    }

    #[inline]
    pub fn group(&self, group: u32) -> *mut pl::Group {
        self.groups.at(group as usize)
    }

    #[inline]
    pub fn pool(&self, group: u32) -> *mut pl::Pool {
        // SAFETY: in bounds; takes an address only.
        unsafe { std::ptr::addr_of_mut!((*self.group(group)).pool) }
    }

    #[inline]
    pub fn queue(&self, group: u32, cpu: u32) -> *mut pl::Queue {
        self.queues.at(group as usize * self.nr_cpus + cpu as usize)
    }

    #[inline]
    pub fn balance(&self, group: u32, cpu: u32) -> *mut pl::Balance {
        self.balances.at(group as usize * self.nr_cpus + cpu as usize)
    }

    /// The side group of headroom.
    pub fn side(&self) -> u32 {
        self.nr_groups as u32 - 1
    }

    /// The number of a group that the policy returned; `None` for NULL.
    #[inline]
    pub fn number(&self, group: *const pl::Group) -> Option<u32> {
        if group.is_null() {
            return None;
        }
        // SAFETY: a group that the policy returns is one of ours.
        Some(unsafe { group.offset_from(self.groups.at(0)) } as u32)
    }

    /// The level above one of those that limit `group`: the parent, and after the root headroom's side group, if the
    /// group is of the side.
    #[inline]
    pub fn above(&self, level: u32, group: u32) -> Option<u32> {
        // SAFETY: groups are alive and not borrowed.
        unsafe {
            let at = self.group(level);
            self.number(match (*at).parent.is_null() && (*at).is_side == 0 {
                true => (*self.group(group)).side,
                false => (*at).parent,
            })
        }
    }

    /// Makes a group's queue on a CPU, and those of all above it, ready for use.
    #[inline]
    pub fn touch(&self, group: u32, cpu: u32) {
        // SAFETY: in bounds. The single thread of the engine is the only user.
        if unsafe { (*self.queue(group, cpu)).effective } == 0 {
            self.touch_first(group, cpu);
        }
    }

    #[cold]
    fn touch_first(&self, group: u32, cpu: u32) {
        let mut level = Some(group);
        while let Some(number) = level {
            // SAFETY: as in touch().
            unsafe {
                let queue = self.queue(number, cpu);
                // The levels above may have tasks of their own.
                if (*queue).effective == 0 {
                    (*queue).effective = pl::EFFECTIVE_ONE;
                    (*queue).refreshed_ns = NEVER_NS;
                    (*queue).look_at = cpu;
                    (*self.balance(number, cpu)).cpu = cpu;
                }
                level = self.number((*self.group(number)).parent);
            }
        }
        let side = self.side();
        // SAFETY: as in touch().
        unsafe {
            (*self.queue(side, cpu)).effective = pl::EFFECTIVE_ONE;
            (*self.queue(side, cpu)).look_at = cpu;
            (*self.balance(side, cpu)).cpu = cpu;
        }
    }

    /// First task parked there; it is linked with the others.
    pub fn parked(&self, group: u32, cpu: u32) -> Option<u32> {
        // SAFETY: in bounds, single thread.
        let task = unsafe { *self.parked.at(group as usize * self.nr_cpus + cpu as usize) };
        task.checked_sub(1)
    }

    pub fn set_parked(&self, group: u32, cpu: u32, task: Option<u32>) {
        // SAFETY: in bounds, single thread.
        unsafe {
            *self.parked.at(group as usize * self.nr_cpus + cpu as usize) = task.map_or(0, |t| t + 1);
        }
    }

    #[inline]
    pub fn load_line(&mut self, group: u32, cpu: u32) -> (&mut Line, &mut u32) {
        let seen = self.load_seen.at(group as usize * self.nr_cpus + cpu as usize);
        // SAFETY: in bounds; the array is not reachable through `load_lines`.
        (&mut self.load_lines[group as usize], unsafe { &mut *seen })
    }

    #[inline]
    pub fn pool_line(&mut self, group: u32, cpu: u32) -> (&mut Line, &mut u32) {
        let seen = self.pool_seen.at(group as usize * self.nr_cpus + cpu as usize);
        // SAFETY: as in load_line().
        (&mut self.pool_lines[group as usize], unsafe { &mut *seen })
    }
}
