/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * intf.h - the scheduler's state, as both BPF and the loader (crates/live/src/intf.rs) see it
 *
 * All of it lives in one BPF arena, so that the loader reads what the scheduler writes, in place. Everything
 * per group has the size of the real machine (live_state.nr_cpus), which is why it is found by pointers.
 */
#ifndef PLIMSOLL_INTF_H
#define PLIMSOLL_INTF_H

#include "headroom.h"
#include "place.h"
#include "steal.h"
#include "steps.h"

#define LIVE_CPUS_MAX 1024
#define LIVE_NAME_MAX 64

struct live_group;

/* A task. Allocated as it is born, on a free list afterwards; never unmapped while the scheduler runs. */
struct live_task {
	struct pl_task t;     /* first */
	u64 charged_at_ns;    /* when it was last charged */
	u64 charged_exec_ns;  /* the kernel's count of its run time then */
	u64 waiting_since_ns; /* runnable and not running since; 0: sleeps or runs */
	u64 starved_since_ns; /* runnable without having run for PL_BW_TURN_NS at a stretch since; 0: sleeps */
	u64 picked_exec_ns;   /* the kernel's count of its run time when it was last picked */
	struct live_group PL_MEM *group;
	u64 grant_ns; /* may run for so long although throttled: it has waited for too long */
	u64 border_at_ns; /* it came to the border of user space then, throttled; 0: not, or was stopped or went on */
	u64 waits_exec_ns; /* its run time as it was stopped there; 0: it was not, or has run since */
	u32 border_asked;  /* at_border will be called as it goes to user space */
	u32 runnable;	   /* in its group's queues on t.cpu */
	u32 parked;	   /* slot + 1 of the group in whose parking queue it is */
	s32 pid;
	u32 next_free;	     /* low half of an arena address */
	u32 yielded;	     /* it gives its turn away: see plimsoll_yield */
	struct pl_turn turn; /* turn.h */
	s64 ran_ns; /* it has run for so long, and its lines were not told yet; negative: they were of more */
} PL_OWN_LINE;

struct live_group {
	struct pl_group g; /* first */
	u32 slot;	   /* also names its parking queue and its timers */
	u32 refs;	   /* tasks, children, and the cgroup itself */
	u32 alive;	   /* the cgroup is there */
	u32 nr_parked;	   /* tasks in its parking queue, or on the way there */
	u32 next_free;	   /* low half of an arena address */
	u32 nr_children;   /* groups of living cgroups right below */
	u32 owes_timer[2]; /* its period, and its slack timer could not be started, and is to be */
	u32 limits_written;
	u32 nr_below;	  /* groups of living cgroups below, at any depth */
	u64 cpu_burst_us; /* cpu.max.burst; the knob burst_us, where set, takes its place */
	u64 burst_us;	  /* knob user.plimsoll.burst_us */
	u32 burst_set;
	u32 onset_percent;
	u64 quota_us; /* as in cpu.max; ~0: none */
	u64 period_us;
	char name[LIVE_NAME_MAX];
};

/* Why a cgroup was merged into the group of one above it (merge.h). */
enum live_merge {
	LIVE_MERGE_DEPTH = 1, /* it is too many levels deep */
	LIVE_MERGE_SHARE,     /* a cgroup above has its share of groups below it */
	LIVE_MERGE_FULL,      /* all max_groups groups are in use, or the memory for one is not there */
	LIVE_MERGE_PARENT,    /* its parent is merged */
	LIVE_MERGE_LIMIT,     /* cpu.max was set on a cgroup that is merged already */
};

#define MERGES_KEPT 32

/* A merge that the loader is to tell of. */
struct live_merged {
	u64 id;
	u64 into_id;
	u64 quota_us; /* its cpu.max; ~0: none */
	u64 period_us;
	u32 level;
	u32 why;
	char name[LIVE_NAME_MAX];
};

/* The first line is what other CPUs look at. */
struct live_cpu {
	struct pl_fair_cpu fair;
	struct live_task PL_MEM *running;
	u32 lock;	 /* queues[cpu] of every group, and this */
	u32 other_class; /* a real-time or deadline task runs here, and counts as one more that is queued */
	u32 online;
	u32 next_online; /* the next CPU on line, round; itself where it is the only one */
	u32 is_idle;	 /* it runs nothing, of no class */
	u32 gives_way;	 /* the task picked last is idle work, and no woken one is on its way here yet */
	u64 comes;	 /* pl_steps_comes, of the task that came last */
	struct pl_steal steal;
	struct pl_touch touch;
	u64 idle_since_ns; /* 0: busy */
	u64 idle_ns;	   /* up to the last idle stretch that ended */
	u64 timer_at_ns;   /* this CPU's timer fires then; 0: it is not armed */
	u64 stop_at_ns;	   /* the running task is out of run time then; 0: not known to be */
	/* A task of another class took the CPU from it in its turn, and nothing of ours has run since. */
	struct live_task PL_MEM *interrupted;
	u64 turn_ends_ns; /* its turn is over then, if others wait; of `interrupted`: what is left of it */
	u64 check_at_ns;  /* a task here waits for a waker, or another class, to sleep; 0: none */
	u64 side_used_ns;
	u64 nr_switches;
	u64 nr_wakeups;
	u64 nr_preempts;
	u64 nr_pulls;
	u64 nr_parks;
	u64 placed[PL_PLACES]; /* where it sent tasks that woke up on it, the kernel's own threads left out */
	u32 scan;	       /* something queued here may be throttled by now */
	u32 pull_from;	       /* CPU looked at last */
	u32 offer;	       /* the next task that is stopped is offered to an idle CPU */
	s32 passes_to;	       /* the task that its running one woke last, saying that it is about to sleep */
	u64 watch_at_ns; /* tasks wait here: looked at again then, whether the CPU is about to leave; 0: not */
	u64 head_u;	 /* u (domain.h) of the head of the queue last looked at */
	u32 took;	 /* a task of another CPU is about to run here, and is not counted here yet */
	u32 has_own;	 /* something is here, as it looks at another CPU's */
	u64 own_u;	 /* the least u of that */
	struct pl_part part; /* turns.h */
} PL_OWN_LINE;
_Static_assert(__builtin_offsetof(struct live_cpu, steal) == PL_CACHE_LINE,
	       "what others look at is one line");

/* Domains, and gathering their means: turns.h. */
struct live_gather {
	u64 at_ns;	   /* last */
	u32 busy;	   /* it is being done */
	u32 nr_domains;	   /* those that were ever used, and all before them */
	struct pl_sum all; /* of pl_domains_end */
} PL_OWN_LINE;

/*
 * In lines of their own: what every callback reads and nothing writes once it is loaded; how far all CPUs are served; what each
 * fork and exit writes; what headroom's windows and changes of groups write.
 */
struct live_state {
	struct pl_config config;
	struct pl_steal_config steal;
	struct pl_headroom_config headroom_config;
	struct live_cpu PL_MEM *cpus;
	struct live_group PL_MEM *PL_MEM *groups; /* by slot */
	struct live_group PL_MEM *side;		  /* slot 0 */
	struct pl_sparsemask_chunk PL_MEM *chunks;
	struct pl_sparsemask PL_MEM *overloaded; /* one per LLC */
	struct live_merged PL_MEM *merged;	 /* the last MERGES_KEPT, by nr_merges */
	u32 nr_cpus;
	u32 max_groups;
	struct pl_domain PL_MEM *domains; /* one more than there are CPUs: domain.h */
	struct live_gather gather;
	s64 free_tasks; /* tag << 32 | low half of an arena address */
	s64 free_groups;
	u64 apart[6];
	struct pl_headroom headroom;
	struct pl_headroom marked; /* as walk_side finds it */
	u64 window_at_ns;
	u64 window_idle_ns; /* sums as the last window ended */
	u64 window_used_ns;
	u64 sum_idle_ns; /* sums as last measured */
	u64 sum_used_ns;
	u32 nr_online;
	u32 nr_slots;  /* groups allocated so far */
	u32 nr_groups; /* alive */
	u32 max_depth;
	u32 window_active;  /* the headroom window timer runs */
	u32 timers_owed;    /* a timer of some group has to be started */
	u32 timers_refused; /* times that the kernel did not start a group's timer */
	u32 timers_overdue; /* period timers that should have fired long before they were started again */
	u64 groups_changed; /* times that a group came or went */
	u32 relinking;	    /* a walk over the groups is on its way, for headroom */
	u32 relink_owed;    /* and is to do so again */
	u32 nr_relinks;	    /* counts what a new group must not miss */
	u32 nr_links;	    /* counts walks along the groups' links, for its barrier */
	u32 nr_linked;	    /* counts changes of the links, so that two at once are seen */
	u32 lock_lost;	    /* a callback went on without a CPU's lock */
	u32 nr_merges;	    /* told of so far */
	u32 nr_merged;	    /* cgroups that are merged now */
	u32 nr_give_way;    /* CPUs with gives_way */
};
_Static_assert(__builtin_offsetof(struct live_state, free_tasks) % PL_CACHE_LINE == 0 &&
		   __builtin_offsetof(struct live_state, headroom) % PL_CACHE_LINE == 0,
	       "what is written often is apart from what is read");

/* Switches of the machine, as the loader passes them. */
struct live_settings {
	struct pl_config config;
	struct pl_steal_config steal;
	struct pl_headroom_config headroom;
	u64 min_run_ns; /* a task that was let run is not stopped before this */
};

/* Argument of the program `set_knobs`. */
struct live_knobs {
	u64 cgroup_id;
	u64 burst_us;
	u64 tolerance_us; /* of a main group, per headroom window; 0: the machine's */
	u32 burst_set;
	u32 onset_percent;
	u32 headroom_percent;
	s32 result;
};

/* Argument of the program `mend_timers`. */
struct live_mend {
	u64 now_ns; /* out: the scheduler's clock */
	u32 fail;
	u32 took_over; /* the kernel has just handed over the CPUs */
};

struct live_exit {
	s32 kind; /* 0: still running */
	u32 reserved;
	s64 code;
	char reason[128];
	char message[1024];
};

#endif
