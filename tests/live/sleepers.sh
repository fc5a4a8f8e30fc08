#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Two groups of equal weight on CPU 0, each with a spinner; one has threads that sleep most of the time, too, in the
# spinner's group or, as in a pod, in a sibling of it. What these take that spinner has less of: both groups get half. The
# kernel's own scheduler gives 499 or 500 of 1,000 each time; docs/src/lab/live-shares.md has the figures.
#   make static guest
#   dist/plimsoll vm --timing --scheduler plimsoll --file target/guest/duty --file /usr/bin/nice \
#     --file tests/live/sleepers.sh -- sleepers.sh
# Exit: 0 both get about half, 1 they do not.
root=/sys/fs/cgroup
failed=0

use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }

spin() { # GROUP NICE
	nice -n "$2" sh -c "echo \$\$ >$root/$1/cgroup.procs; while :; do :; done" &
	pids="$pids $!"
}

beside() { # SPINNER_GROUP SLEEPERS_GROUP NICE THREADS WORK_US INTERVAL_US LEAST MOST
	duty --duration-ms 60000 --group one --set cpuset.cpus=0 --slow 1 --group "$2" --set cpuset.cpus=0 --duty "$4" \
		--work-us "$5" --interval-us "$6" >/dev/null &
	pids=$!
	until grep -q . "$root/$2/cgroup.procs" 2>/dev/null; do sleep 0.05; done
	mkdir -p "$root/$1"
	echo 0 >"$root/$1/cpuset.cpus"
	spin one 0
	spin "$1" "$3"
	sleep 1
	one=$(use one) other=$(use other)
	sleep 4
	one=$(($(use one) - one)) other=$(($(use other) - other))
	share=$((other * 1000 / (one + other)))
	echo "a spinner of nice $3 in $1, $4 of $5 us every $6 us in $2: together $share of 1000"
	if [ $share -lt "$7" ] || [ $share -gt "$8" ]; then
		echo "FAILED: allowed $7..$8"
		failed=1
	fi
	for group in one "$1" "$2"; do
		for pid in $(cat "$root/$group/cgroup.procs"); do kill -9 "$pid"; done
	done
	# shellcheck disable=SC2086 # words
	kill -9 $pids 2>/dev/null
	wait
	for group in one "$1" "$2" other; do
		until rmdir "$root/$group" 2>/dev/null || [ ! -d "$root/$group" ]; do sleep 0.05; done
	done
}

beside other other 0 10 400 10000 480 520
beside other other 0 1 750 5000 480 520
beside other other 19 1 750 3000 480 520
beside other other 19 1 30 3000 480 520
beside other other 19 1 4000 49000 480 520
beside other/main other/sidecar 0 10 200 10000 480 520
beside other/main other/sidecar 0 1 750 3000 480 520
exit $failed
