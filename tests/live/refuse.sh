#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Beyond what the scheduler can represent it refuses, names the cgroup, and hands back to the kernel's own scheduler.
root=/sys/fs/cgroup

start() {
	: >/run/refuse.log # what the last one said would count as this one's
	plimsoll run "$@" >/run/refuse.log 2>&1 &
	scheduler=$!
	until grep -q '^plimsoll: scheduling' /run/refuse.log; do
		kill -0 $scheduler 2>/dev/null || {
			cat /run/refuse.log
			echo "FAILED: it did not start"
			exit 1
		}
		sleep 0.02
	done
}

# It has left with code 1 and its log says $1.
left_with() {
	wait $scheduler
	code=$?
	[ $code = 1 ] && [ "$(cat /sys/kernel/sched_ext/state)" = disabled ] && grep -q "$1" /run/refuse.log && {
		echo "refused: $(grep -o "$1" /run/refuse.log | head -1)"
		return
	}
	cat /run/refuse.log
	echo "FAILED: code $code, state $(cat /sys/kernel/sched_ext/state); wanted a message like '$1'"
	exit 1
}

deepen() {
	path=$root
	level=0
	while [ $level -lt 33 ]; do
		level=$((level + 1))
		path=$path/level$level
		mkdir -p $path || [ $level = 33 ] || exit 1
		echo +cpu >$path/cgroup.subtree_control
	done 2>/dev/null
}
too_deep='cgroup [0-9]* (level33) is 33 levels deep; at most 32 can be represented'
start
deepen
left_with "$too_deep"
# Where they are there already it does not say that it schedules.
deepen
plimsoll run >/run/refuse.log 2>&1
code=$?
if [ $code != 3 ] || ! grep -q "^error: the scheduler cannot begin.*$too_deep" /run/refuse.log ||
	grep -q '^plimsoll: scheduling' /run/refuse.log || [ "$(cat /sys/kernel/sched_ext/state)" != disabled ]; then
	cat /run/refuse.log
	echo "FAILED: code $code instead of 3, or another message, as it begins where groups are too deep"
	exit 1
fi
while [ $path != $root ]; do
	rmdir $path 2>/dev/null
	path=${path%/*}
done

# Nothing is to be enforced here, whatever the kernel takes for a burst.
mkdir $root/free
start
echo 18000000000000000 >$root/free/cpu.max.burst || exit 1
sleep 0.2
kill -INT $scheduler
wait $scheduler || {
	cat /run/refuse.log
	echo "FAILED: a burst without a limit ends it"
	exit 1
}
rmdir $root/free

echo 'max_groups = 64' >/run/refuse.toml
start --config /run/refuse.toml
i=0
while [ $i -lt 80 ]; do
	i=$((i + 1))
	mkdir $root/many$i 2>/dev/null
done
left_with 'cgroup [0-9]* (many6[0-9]): more than 64 groups, or no memory left'
rmdir $root/many*
echo "refuse: depth and number are refused with the cgroup's name"
