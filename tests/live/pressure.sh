#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# One CPU, two groups, what each of them gets: a crowd of light threads, a group that makes processes without end, a loop of
# sched_yield(). First under the kernel's own scheduler, then under plimsoll, in one boot. Starts the scheduler itself.
#   make static guest
#   dist/plimsoll vm --timing --cpus 1 --file dist/plimsoll --file target/guest/pressure \
#     --file tests/live/pressure.sh -- pressure.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
failed=0

mkdir "$root/one" "$root/other"

# CPU time and longest standstill of `one`, whose KIND this is, beside `other`.
beside() { # KIND WEIGHT OTHER_KIND WEIGHT MSEC COUNT
	echo "$2" >"$root/one/cpu.weight"
	echo "$4" >"$root/other/cpu.weight"
	pressure "$3" other "$5" "$6" >other.out &
	pressure "$1" one "$5" >one.out
	wait %2 2>/dev/null || wait $!
	read -r used longest <one.out
	read -r other _ <other.out
	while grep -q . "$root/other/cgroup.procs"; do sleep 0.1; done
}

least() { # WHAT VALUE UNIT BOUND
	echo "  $1 $2 $3, at least $4"
	[ "$2" -ge "$4" ] || failed=1
}

most() {
	echo "  $1 $2 $3, at most $4"
	[ "$2" -le "$4" ] || failed=1
}

rows() { # SCHEDULER
	echo "$1:"
	beside spin 10000 spin 1 6000 300
	heavy=$used heavy_longest=$longest
	echo "  a spinner of weight 10000 beside 300 of weight 1: $used of 6000 ms, stood still for $longest us"
	beside spin 100 spin 100 6000 300
	equal=$used equal_longest=$longest
	echo "  the same, equal weights: $used of 6000 ms, stood still for $longest us"
	beside spin 100 births 100 2000 1
	births=$used births_longest=$longest
	echo "  a spinner beside a group that makes a process of 1.5 ms each ms: $used of 2000 ms, stood still for $longest us"
	beside spin 100 yield 100 2000 1
	yields=$other
	echo "  a spinner beside a loop of sched_yield: the loop $other of 2000 ms"
	beside naps 100 births 100 2000 1
	naps=$longest
	echo "  a process that sleeps beside births: woke up $longest us too late at most"
}

rows "the kernel's own"
theirs="$heavy $equal $births"
plimsoll run >log 2>&1 &
scheduler=$!
until grep -q '^plimsoll: scheduling' log; do sleep 0.05; done
rows plimsoll
kill -INT $scheduler
wait $scheduler
# shellcheck disable=SC2086 # words
set -- $theirs
echo "compared:"
# Each of them what the kernel's own gives it, divided by 1.2.
least "weight 10000 beside 300 of weight 1:" "$heavy" ms $(($1 * 10 / 12))
least "equal weights:" "$equal" ms $(($2 * 10 / 12))
least "beside births:" "$births" ms $(($3 * 10 / 12))
most "a loop of sched_yield:" "$yields" ms 24
[ $failed = 0 ] || echo "FAILED"
exit $failed
