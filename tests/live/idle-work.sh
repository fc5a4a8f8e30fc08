#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Four CPUs and work that gives way to any other: the requests of a service beside four spinners of a cpu.idle group, and what a
# group has in the second after it was cpu.idle. First under the kernel's own scheduler, then under plimsoll, in one boot. Starts
# the scheduler itself.
#   make static guest
#   dist/plimsoll vm --timing --file dist/plimsoll --file target/guest/duty --file tests/live/idle-work.sh -- idle-work.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
failed=0

use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }

# A figure of the service, as duty printed it, in whole units.
printed() { sed -n "s/.*\"group\":\"service\".*\"$1\":\([0-9]*\).*/\1/p" result; }

service() {
	duty --duration-ms 3000 --group batch --set cpu.idle=1 --spin 4 --group service --duty 3 --work-us 3000 \
		--interval-us 10000 >result
	batch=$(sed -n 's/.*"group":"batch","spin":4,[^}]*"cpu_percent":\([0-9]*\).*/\1/p' result)
	mean=$(printed mean) p99=$(printed p99)
	echo "  a service of 3 threads, 3 ms of 10, beside 4 idle spinners: mean $mean us, p99 $p99 us;" \
		"idle work had $batch%"
}

# What the group has in one such second strays by 20 of 1000 under plimsoll, and by 11 under the kernel's own: the mean of five is held.
cleared() {
	total=0 shares=
	for _ in 1 2 3 4 5; do
		clear_once
		total=$((total + share)) shares="$shares $share"
	done
	share=$((total / 5))
	echo "  cpu.idle cleared, equal groups: in the next second $share of 1000 (mean of$shares)"
}

clear_once() {
	mkdir "$root/one" "$root/other"
	echo 1 >"$root/one/cpu.idle"
	pids=
	for group in one one one one other other other other; do
		sh -c "echo \$\$ >$root/$group/cgroup.procs; while :; do :; done" &
		pids="$pids $!"
	done
	sleep 2
	echo 0 >"$root/one/cpu.idle"
	one=$(use one) other=$(use other)
	sleep 1
	one=$(($(use one) - one)) other=$(($(use other) - other))
	share=$((one * 1000 / (one + other)))
	# shellcheck disable=SC2086 # words
	kill -9 $pids
	# shellcheck disable=SC2086
	wait $pids 2>/dev/null
	for group in one other; do until rmdir "$root/$group" 2>/dev/null; do sleep 0.05; done; done
}

rows() { # SCHEDULER
	echo "$1:"
	service
	cleared
}

rows "the kernel's own"
their_mean=$mean their_p99=$p99
plimsoll run >log 2>&1 &
scheduler=$!
until grep -q '^plimsoll: scheduling' log; do sleep 0.05; done
rows plimsoll
kill -INT $scheduler
wait $scheduler
echo "compared:"
# p99 is printed, not held: docs/src/lab/live-waits.md, Beside work that is cpu.idle.
echo "  the service's mean: $mean us, at most 1.2 times $their_mean; p99 $p99 us beside $their_p99"
[ $((mean * 10)) -le $((their_mean * 12)) ] || failed=1
echo "  the share of the group that was idle: $share of 1000, 450 to 550"
[ $share -ge 450 ] && [ $share -le 550 ] || failed=1
[ $failed = 0 ] || echo "FAILED"
exit $failed
