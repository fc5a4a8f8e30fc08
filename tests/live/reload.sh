#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Loads and unloads the scheduler again and again under throttled load. $1: how often.
# Every time it takes over, runs the load and hands back; the load loses no process, and has at least half of what it is due in the
# first 0.2 s: what ran as the kernel handed over the CPUs is not paid back.
times=${1:-5}
root=/sys/fs/cgroup
mkdir $root/slow
echo +cpu >$root/slow/cgroup.subtree_control
mkdir $root/slow/inner
echo "10000 50000" >$root/slow/cpu.max
echo "1000 10000" >$root/slow/inner/cpu.max
for _ in 1 2 3 4 5 6; do
	sh -c "echo 0 >$root/slow/inner/cgroup.procs; while :; do :; done" &
done

usage() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }
fail() {
	echo "FAILED at load $i of $times: $1"
	cat /run/reload.log
	exit 1
}

i=0
while [ "$i" -lt "$times" ]; do
	i=$((i + 1))
	: >/run/reload.log # what the last one said would count as this one's
	plimsoll run >/run/reload.log 2>&1 &
	scheduler=$!
	until grep -q '^plimsoll: scheduling' /run/reload.log; do
		kill -0 $scheduler 2>/dev/null || fail "it did not start"
		sleep 0.02
	done
	[ "$(cat /sys/kernel/sched_ext/state)" = enabled ] || fail "it says that it schedules, and does not"
	before=$(usage slow)
	sleep 0.2
	used=$(($(usage slow) - before))
	[ "$used" -ge 10000 ] || fail "the throttled group had $used of 20000 us"
	kill -INT $scheduler
	wait $scheduler || fail "it ended with code $?"
	[ "$(cat /sys/kernel/sched_ext/state)" = disabled ] || fail "it left, and still schedules"
done
left=$(wc -l <$root/slow/inner/cgroup.procs)
[ "$left" = 6 ] || fail "$left of 6 processes are left"
echo 1 >$root/slow/cgroup.kill
wait
rmdir $root/slow/inner $root/slow || fail "the groups do not go"
echo "reload: $times times, none of 6 processes lost"
