// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy's memory: groups, their queues and balances on each CPU, their rings.
//!
//! Indexed [group][CPU], allocated zeroed and touched only where a group has run, so that the system commits pages for
//! groups x CPUs used and not for groups x CPUs.
use super::super::lines::Line;
use super::array::ZeroedArray;
use super::sys::{
    self as pl, Balance, BwConfig, BwLimits, Config, FairCpu, Headroom, HeadroomConfig, Pool, Queue, Touch,
};
use super::Task;

/// When the shares of a queue that was never used were brought up to date: so far before or after any time that they
/// are stale.
const NEVER_NS: u64 = 1 << 63;

/// The root group, for a class's own memory of groups.
#[derive(Clone, Copy)]
pub(crate) struct Root(pub(super) *const pl::Group);

/// Reached through raw pointers only: C keeps pointers between these arrays. What is read is a copy.
pub(crate) struct Memory {
    nr_cpus: usize,
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
    fn group(&self, group: u32) -> *mut pl::Group {
        self.groups.at(group as usize)
    }

    #[inline]
    fn pool_at(&self, group: u32) -> *mut Pool {
        // SAFETY: in bounds; takes an address only.
        unsafe { std::ptr::addr_of_mut!((*self.group(group)).pool) }
    }

    /// C finds a queue by its CPU's number, and does not check it.
    #[inline]
    fn checked(&self, cpu: u32) -> u32 {
        assert!((cpu as usize) < self.nr_cpus, "CPU {cpu} of {}", self.nr_cpus);
        cpu
    }

    #[inline]
    fn cell(&self, group: u32, cpu: u32) -> usize {
        group as usize * self.nr_cpus + self.checked(cpu) as usize
    }

    #[inline]
    fn queue_at(&self, group: u32, cpu: u32) -> *mut Queue {
        self.queues.at(self.cell(group, cpu))
    }

    #[inline]
    fn balance_at(&self, group: u32, cpu: u32) -> *mut Balance {
        self.balances.at(self.cell(group, cpu))
    }

    /// The side group of headroom.
    pub fn side(&self) -> u32 {
        self.nr_groups as u32 - 1
    }

    /// The number of a group that the policy returned; `None` for NULL.
    #[inline]
    fn number(&self, group: *const pl::Group) -> Option<u32> {
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
        if unsafe { (*self.queue_at(group, cpu)).effective } == 0 {
            self.touch_first(group, cpu);
        }
    }

    #[cold]
    fn touch_first(&self, group: u32, cpu: u32) {
        let mut level = Some(group);
        while let Some(number) = level {
            // SAFETY: as in touch().
            unsafe {
                let queue = self.queue_at(number, cpu);
                // The levels above may have tasks of their own.
                if (*queue).effective == 0 {
                    (*queue).effective = pl::EFFECTIVE_ONE;
                    (*queue).refreshed_ns = NEVER_NS;
                    (*queue).look_at = cpu;
                    (*self.balance_at(number, cpu)).cpu = cpu;
                }
                level = self.number((*self.group(number)).parent);
            }
        }
        let side = self.side();
        // SAFETY: as in touch().
        unsafe {
            (*self.queue_at(side, cpu)).effective = pl::EFFECTIVE_ONE;
            (*self.queue_at(side, cpu)).look_at = cpu;
            (*self.balance_at(side, cpu)).cpu = cpu;
        }
    }

    /// First task parked there; it is linked with the others.
    pub fn parked(&self, group: u32, cpu: u32) -> Option<u32> {
        // SAFETY: in bounds, single thread.
        let task = unsafe { *self.parked.at(self.cell(group, cpu)) };
        task.checked_sub(1)
    }

    pub fn set_parked(&self, group: u32, cpu: u32, task: Option<u32>) {
        // SAFETY: in bounds, single thread.
        unsafe {
            *self.parked.at(self.cell(group, cpu)) = task.map_or(0, |t| t + 1);
        }
    }

    #[inline]
    pub fn load_line(&mut self, group: u32, cpu: u32) -> (&mut Line, &mut u32) {
        let seen = self.load_seen.at(self.cell(group, cpu));
        // SAFETY: in bounds; the array is not reachable through `load_lines`.
        (&mut self.load_lines[group as usize], unsafe { &mut *seen })
    }

    #[inline]
    pub fn pool_line(&mut self, group: u32, cpu: u32) -> (&mut Line, &mut u32) {
        let seen = self.pool_seen.at(self.cell(group, cpu));
        // SAFETY: as in load_line().
        (&mut self.pool_lines[group as usize], unsafe { &mut *seen })
    }
}

// SAFETY of all calls below: groups are alive as long as this is, numbers are checked, and no reference to anything in the
// arrays outlasts a call: the single thread of the engine is the only user.

/// What the policy keeps.
impl Memory {
    #[inline]
    pub fn parent(&self, group: u32) -> Option<u32> {
        // SAFETY: as above.
        self.number(unsafe { (*self.group(group)).parent })
    }

    #[inline]
    pub fn pool(&self, group: u32) -> Pool {
        // SAFETY: as above.
        unsafe { *self.pool_at(group) }
    }

    #[inline]
    pub fn balance(&self, group: u32, cpu: u32) -> Balance {
        // SAFETY: as above.
        unsafe { *self.balance_at(group, cpu) }
    }

    /// Of a queue that was never used: all zero.
    #[inline]
    pub fn queue(&self, group: u32, cpu: u32) -> Queue {
        // SAFETY: as above.
        unsafe { *self.queue_at(group, cpu) }
    }

    /// Of each CPU what it has published of a group's load, for checks.
    pub fn contributions(&self, group: u32) -> impl Iterator<Item = i64> + '_ {
        // SAFETY: as above, and this holds no reference to more than one value at a time.
        self.cells(&self.queues, group)
            .map(|queue| unsafe { (*queue).load.contribution })
    }

    /// Of each CPU what is runnable of a group there, for checks.
    pub fn runnable(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        // SAFETY: as above.
        self.cells(&self.queues, group)
            .map(|queue| unsafe { (*queue).nr_runnable })
    }

    /// On how many CPUs a group is throttled, for checks.
    pub fn nr_throttled(&self, group: u32) -> usize {
        // SAFETY: as above.
        self.cells(&self.balances, group)
            .filter(|&balance| unsafe { (*balance).throttled != 0 })
            .count()
    }

    /// What a group has on each CPU.
    fn cells<T: plimsoll_policy_sys::Zeroed>(
        &self,
        of: &ZeroedArray<T>,
        group: u32,
    ) -> impl Iterator<Item = *mut T> {
        let first = of.at(self.cell(group, 0));
        // That one is in bounds, and so are those before it.
        of.at(self.cell(group, self.nr_cpus as u32 - 1));
        // SAFETY: as above.
        (0..self.nr_cpus).map(move |cpu| unsafe { first.add(cpu) })
    }

    #[inline]
    pub fn is_throttled(&self, group: u32, cpu: u32) -> bool {
        // SAFETY: as above.
        unsafe { (*self.balance_at(group, cpu)).throttled != 0 }
    }

    pub fn load_avg(&self, group: u32) -> i64 {
        // SAFETY: as above.
        unsafe { (*self.group(group)).load.load_avg }
    }

    pub fn root(&self) -> Root {
        Root(self.group(0))
    }

    /// A group as it is configured.
    pub fn configure(&self, group: u32, cpu_weight: u32, idle: bool, headroom_percent: u32) {
        let group = self.group(group);
        // SAFETY: as above.
        unsafe {
            (*group).weight = pl::pl_weight_of_cpu_weight(cpu_weight);
            (*group).idle = u32::from(idle);
            (*group).headroom_percent = headroom_percent;
        }
    }

    /// The last group is the side.
    pub fn mark_side(&self) {
        // SAFETY: as above.
        unsafe { (*self.group(self.side())).is_side = 1 };
    }

    pub fn set_headroom_percent(&self, group: u32, percent: u32) {
        // SAFETY: as above.
        unsafe { (*self.group(group)).headroom_percent = percent };
    }

    /// How many CPUs a group's tasks may use.
    pub fn set_cpus(&self, group: u32, cpus: u32) {
        // SAFETY: as above.
        unsafe { (*self.group(group)).cpus = cpus };
    }
}

/// task.h: what gives a task a group or a CPU.
impl Memory {
    /// A task of a group that will begin near a CPU.
    pub fn task(&self, group: u32, cpu: u32) -> Task {
        let mut task: pl::Task = pl::zeroed();
        task.group = self.group(group);
        task.cpu = self.checked(cpu);
        Task(task)
    }

    pub fn pl_cfs_born(&self, task: &mut Task, cpu: u32, fair: &FairCpu) {
        // SAFETY: as above.
        unsafe { pl::pl_cfs_born(&mut task.0, self.checked(cpu), fair) }
    }

    /// The task is in no queue.
    pub fn pl_task_regroup(&self, task: &mut Task, group: u32) {
        // SAFETY: as above.
        unsafe { pl::pl_task_regroup(&mut task.0, self.group(group)) }
    }

    #[inline]
    pub fn pl_task_moved(&self, task: &mut Task, to: u32, now_ns: u64, config: &Config) {
        // SAFETY: as above.
        unsafe { pl::pl_task_moved(&mut task.0, self.checked(to), now_ns, config) }
    }

    #[inline]
    pub fn pl_task_runnable(
        &self,
        task: &mut Task,
        cpu: u32,
        now_ns: u64,
        touch: &mut Touch,
        config: &Config,
    ) -> u32 {
        // SAFETY: as above.
        unsafe { pl::pl_task_runnable(&mut task.0, self.checked(cpu), now_ns, touch, config) }
    }
}

/// group.h.
impl Memory {
    pub fn pl_group_set_weight(&self, group: u32, cpu_weight: u32) {
        // SAFETY: as above.
        unsafe { pl::pl_group_set_weight(self.group(group), cpu_weight) }
    }

    pub fn pl_group_set_idle(&self, group: u32, idle: bool) {
        // SAFETY: as above.
        unsafe { pl::pl_group_set_idle(self.group(group), idle) }
    }

    pub fn pl_queue_written(&self, group: u32, cpu: u32) {
        // SAFETY: as above.
        unsafe { pl::pl_queue_written(self.group(group), self.checked(cpu)) }
    }

    /// Of a class that takes turns by steps.h.
    pub fn pl_steps_written(&self, group: u32, cpu: u32, now_ns: u64, touch: &mut Touch, config: &Config) {
        // SAFETY: as above.
        unsafe { pl::pl_steps_written(self.group(group), self.checked(cpu), now_ns, touch, config) }
    }

    pub fn pl_group_link(&self, group: u32) {
        // SAFETY: as above.
        unsafe { pl::pl_group_link(self.group(group)) }
    }

    #[inline]
    pub fn pl_group_parked(
        &self,
        group: u32,
        level: u32,
        cpu: u32,
        now_ns: u64,
        touch: &mut Touch,
        config: &Config,
    ) {
        let (group, level) = (self.group(group), self.group(level));
        // SAFETY: as above.
        unsafe { pl::pl_group_parked(group, level, self.checked(cpu), now_ns, touch, config) }
    }

    /// The level that keeps a group's tasks from running on a CPU.
    #[inline]
    pub fn pl_group_throttled(&self, group: u32, cpu: u32) -> Option<u32> {
        // SAFETY: as above.
        self.number(unsafe { pl::pl_group_throttled(self.group(group), self.checked(cpu)) })
    }

    #[inline]
    pub fn pl_group_budget(&self, group: u32, cpu: u32, max_ns: u64) -> u64 {
        // SAFETY: as above.
        unsafe { pl::pl_group_budget(self.group(group), self.checked(cpu), max_ns) }
    }
}

/// bandwidth.h, of a group's pool.
impl Memory {
    #[inline]
    pub fn pl_bw_limited(&self, group: u32) -> bool {
        // SAFETY: as above.
        unsafe { pl::pl_bw_limited(self.pool_at(group)) }
    }

    pub fn pl_bw_set(
        &self,
        group: u32,
        limits: &BwLimits,
        phase_ns: u64,
        now_ns: u64,
        config: &BwConfig,
    ) -> u32 {
        // SAFETY: as above.
        unsafe { pl::pl_bw_set(self.pool_at(group), limits, phase_ns, now_ns, config) }
    }

    #[inline]
    pub fn pl_bw_take_arm_period(&self, group: u32) -> bool {
        // SAFETY: as above.
        unsafe { pl::pl_bw_take_arm_period(self.pool_at(group)) }
    }

    #[inline]
    pub fn pl_bw_take_arm_slack(&self, group: u32) -> bool {
        // SAFETY: as above.
        unsafe { pl::pl_bw_take_arm_slack(self.pool_at(group)) }
    }

    pub fn pl_bw_period(&self, group: u32, now_ns: u64, nth: u32, config: &BwConfig) -> bool {
        // SAFETY: as above.
        unsafe { pl::pl_bw_period(self.pool_at(group), now_ns, nth, config) }
    }

    pub fn pl_bw_slack(&self, group: u32, now_ns: u64, config: &BwConfig) -> bool {
        // SAFETY: as above.
        unsafe { pl::pl_bw_slack(self.pool_at(group), now_ns, config) }
    }

    pub fn pl_bw_distribute_begin(&self, group: u32) -> bool {
        // SAFETY: as above.
        unsafe { pl::pl_bw_distribute_begin(self.pool_at(group)) }
    }

    /// The CPU of the next balance that is released.
    pub fn pl_bw_distribute_next(&self, group: u32, now_ns: u64, config: &BwConfig) -> Option<u32> {
        // SAFETY: as above.
        unsafe { Self::cpu_of(pl::pl_bw_distribute_next(self.pool_at(group), now_ns, config)) }
    }

    /// Likewise, whatever the pool says.
    pub fn pl_bw_release_next(&self, group: u32, now_ns: u64) -> Option<u32> {
        // SAFETY: as above.
        unsafe { Self::cpu_of(pl::pl_bw_release_next(self.pool_at(group), now_ns)) }
    }

    pub fn pl_bw_distribute_end(&self, group: u32) {
        // SAFETY: as above.
        unsafe { pl::pl_bw_distribute_end(self.pool_at(group)) }
    }

    /// SAFETY: NULL, or a balance of ours.
    unsafe fn cpu_of(balance: *const Balance) -> Option<u32> {
        // SAFETY: as above.
        (!balance.is_null()).then(|| unsafe { (*balance).cpu })
    }
}

/// headroom.h.
impl Memory {
    pub fn pl_headroom_clear(&self, group: u32) {
        // SAFETY: as above.
        unsafe { pl::pl_headroom_clear(self.group(group)) }
    }

    pub fn pl_headroom_mark(&self, headroom: &mut Headroom, group: u32) {
        // SAFETY: as above.
        unsafe { pl::pl_headroom_mark(headroom, self.group(group)) }
    }

    pub fn pl_headroom_is_side(&self, headroom: &Headroom, group: u32) -> bool {
        // SAFETY: as above.
        unsafe { pl::pl_headroom_is_side(headroom, self.group(group)) }
    }

    pub fn pl_headroom_side_changes(&self, headroom: &Headroom, group: u32) -> bool {
        // SAFETY: as above.
        unsafe { pl::pl_headroom_side_changes(headroom, self.group(group)) }
    }

    /// To the side group.
    pub fn pl_headroom_link(&self, headroom: &Headroom, group: u32) {
        // SAFETY: as above.
        unsafe { pl::pl_headroom_link(headroom, self.group(group), self.group(self.side())) }
    }

    /// A window of the side group's ended, in which it used `used_ns`.
    #[allow(clippy::too_many_arguments)]
    pub fn pl_headroom_window(
        &self,
        headroom: &mut Headroom,
        used_ns: u64,
        idle_ns: u64,
        window_ns: u64,
        nr_cpus_online: u32,
        now_ns: u64,
        config: &HeadroomConfig,
        bandwidth: &BwConfig,
    ) -> u32 {
        let side = self.group(self.side());
        // SAFETY: as above.
        unsafe {
            pl::pl_headroom_window(
                headroom,
                side,
                used_ns,
                idle_ns,
                window_ns,
                nr_cpus_online,
                now_ns,
                config,
                bandwidth,
            )
        }
    }
}
