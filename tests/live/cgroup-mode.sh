#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What a group's weight is for: two groups of spinners on all CPUs, tasks and weights of each, and what of 1,000 the first
# group gets in 6 s. Where the kernel has a cgroup_mode (7.3), again with "smp". No bounds: it shows which rule holds.
#   plimsoll vm --timing --kernel 7.3 --file tests/live/cgroup-mode.sh -- cgroup-mode.sh
#   the same with --scheduler plimsoll
set -eu
cd /sys/fs/cgroup
mode=/sys/kernel/debug/sched/cgroup_mode

# spin GROUP N
spin() {
	i=0
	while [ $i -lt "$2" ]; do
		sh -c "echo \$\$ > /sys/fs/cgroup/$1/cgroup.procs; while :; do :; done" &
		i=$((i + 1))
	done
}

use() { sed -n 's/usage_usec //p' "$1/cpu.stat"; }

# pair TASKS TASKS WEIGHT WEIGHT
pair() {
	mkdir a b
	echo "$3" > a/cpu.weight
	echo "$4" > b/cpu.weight
	spin a "$1"
	spin b "$2"
	sleep 3
	a=$(use a) b=$(use b)
	sleep 6
	a=$(($(use a) - a)) b=$(($(use b) - b))
	echo "tasks $1 and $2, weights $3 and $4: $((a * 1000 / (a + b)))"
	echo 1 > a/cgroup.kill
	echo 1 > b/cgroup.kill
	sleep 1
	rmdir a b
}

pairs() {
	pair 2 8 100 100
	pair 1 4 100 100
	pair 1 8 100 100
	pair 4 8 100 100
	pair 2 8 400 100
}

echo "Linux $(uname -r), $(cat /sys/kernel/sched_ext/root/ops 2> /dev/null || echo "the kernel's own"), cgroup_mode: $(cat $mode 2> /dev/null || echo none)"
pairs
if [ -e $mode ] && [ "$(cat /sys/kernel/sched_ext/state 2> /dev/null)" != enabled ]; then
	echo smp > $mode
	echo "cgroup_mode: $(cat $mode)"
	pairs
fi
