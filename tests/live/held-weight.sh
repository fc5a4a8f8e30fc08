#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What a group weighs while it may not run, or did until now. Two equal groups below one limit of 3 ms in 10, each with one spinner
# and with two, on CPUs of their own: they share it evenly, though a slice is larger (the kernel's own gives the first 396 and
# 461 of 1,000 on 7.2; plimsoll gave it 150 and 180 while the first to ask drew all of the pool). On CPU 0, against a spinner
# in a group of equal weight:
# - a pod of which one container is throttled for most of the time: the other one has all that is left of the pod's half;
# - a group that was cpu.idle and no longer is: it gets its half again, and did not while it was.
# The kernel's own scheduler gives 499 or 500 of 1,000, and 3 of 1,000 to the idle one. Until 2026-11-24 ours gave the pods
# 400 and 173, and what had been idle 2 to 476; then the second pod 342 to 493, until what its free container owed the throttled
# one no longer kept it waiting for others.
#   make static guest
#   dist/plimsoll vm --timing --scheduler plimsoll --file target/guest/duty --file tests/live/held-weight.sh -- held-weight.sh
# Exit: 0 it is so, 1 it is not.
root=/sys/fs/cgroup
failed=0

use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }

spin() { # GROUP
	sh -c "echo \$\$ >$root/$1/cgroup.procs; while :; do :; done" &
	pids="$pids $!"
}

judge() { # WHAT OF BESIDE LEAST MOST, the groups' CPU time over 4 s
	first=$(use "$2") second=$(use "$3")
	sleep 4
	first=$(($(use "$2") - first)) second=$(($(use "$3") - second))
	share=$((first * 1000 / (first + second)))
	echo "$1: $share of 1000"
	if [ $share -lt "$4" ] || [ $share -gt "$5" ]; then
		echo "FAILED: allowed $4..$5"
		failed=1
	fi
}

ended() { # GROUPS, children first
	# shellcheck disable=SC2086 # words
	kill -9 $pids
	for group; do
		for pid in $(cat "$root/$group/cgroup.procs" 2>/dev/null); do kill -9 "$pid"; done
	done
	wait
	for group; do
		until rmdir "$root/$group" 2>/dev/null || [ ! -d "$root/$group" ]; do sleep 0.05; done
	done
}

pod() { # WEIGHT LEAST MOST
	mkdir -p $root/pod $root/other
	echo "+cpu +cpuset" >$root/pod/cgroup.subtree_control
	mkdir $root/pod/limited $root/pod/free
	echo 0 >$root/pod/cpuset.cpus
	echo 0 >$root/other/cpuset.cpus
	echo "10000 100000" >$root/pod/limited/cpu.max
	echo "$1" >$root/pod/limited/cpu.weight
	pids=
	for group in pod/limited pod/free other; do spin $group; done
	sleep 1
	judge "a pod whose container of weight $1 is throttled" pod other "$2" "$3"
	ended pod/limited pod/free pod other
}

siblings() { # SPINNERS
	mkdir -p $root/up
	echo "+cpu" >$root/up/cgroup.subtree_control
	mkdir $root/up/one $root/up/other
	pids=
	for _ in $(seq "$1"); do
		spin up/one
		spin up/other
	done
	sleep 0.3
	echo "3000 10000" >$root/up/cpu.max
	sleep 1
	judge "of two equal groups below 3 ms in 10, $1 spinners each" up/one up/other 440 560
	echo max >$root/up/cpu.max
	ended up/one up/other up
}

idle() { # BEFORE AFTER LEAST MOST
	mkdir -p $root/spinner
	echo 0 >$root/spinner/cpuset.cpus
	# Which the kernel sets back to 100 as it is cpu.idle no longer.
	echo 1000 >$root/spinner/cpu.weight
	echo "$1" >$root/spinner/cpu.idle
	pids=
	spin spinner
	duty --duration-ms 60000 --group woken --set cpuset.cpus=0 --duty 8 --work-us 100 --interval-us 1000 >/dev/null &
	pids="$pids $!"
	sleep 1
	echo "$2" >$root/spinner/cpu.idle
	sleep 1
	judge "a spinner with cpu.idle $1, then $2" spinner woken "$3" "$4"
	ended spinner woken
}

echo "+cpu +cpuset" >$root/cgroup.subtree_control
siblings 1
siblings 2
pod 100 470 530
pod 1000 470 530
idle 1 0 470 530
idle 0 1 0 20
exit $failed
