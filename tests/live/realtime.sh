#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A real-time thread that computes without end on one CPU takes that CPU, and no more: the tasks that ran or wait there
# go on elsewhere. The kernel's own scheduler gives 1,000 of 1,000 and 3,000 of 3,000 and more. A preempted task that
# stays in the CPU's local queue, from which no other CPU can take it, gets 52 of 1,000 on 7.2 and 0 on 6.19, beside
# idle CPUs.
#   make static guest
#   dist/plimsoll vm --timing --scheduler plimsoll --file /usr/bin/chrt --file /usr/bin/taskset --file tests/live/realtime.sh \
#     -- realtime.sh
# Exit: 0 it is so, 1 it is not.
root=/sys/fs/cgroup
failed=0

use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }

spin() { # GROUP
	sh -c "echo \$\$ >$root/$1/cgroup.procs; while :; do :; done" &
	pids="$pids $!"
}

beside() { # SPINNERS LEAST, in ms of CPU time per second
	mkdir -p $root/work
	pids=
	for _ in $(seq "$1"); do spin work; done
	sleep 0.5
	taskset "$(printf '%x' $((1 << $(cut -d' ' -f39 "/proc/${pids##* }/stat"))))" chrt -f 10 sh -c 'while :; do :; done' &
	pids="$pids $!"
	sleep 0.2
	for second in 1 2 3 4 5; do
		before=$(use work)
		sleep 1
		got=$((($(use work) - before) / 1000))
		echo "$1 spinners beside a real-time one on a CPU of theirs, second $second: $got ms"
		if [ $got -lt "$2" ]; then
			echo "FAILED: at least $2"
			failed=1
		fi
	done
	# shellcheck disable=SC2086 # words
	kill -9 $pids
	wait
	until rmdir $root/work 2>/dev/null || [ ! -d $root/work ]; do sleep 0.05; done
}

beside 1 850
beside 3 2550
beside 6 2550
exit $failed
