#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Limits that were set before the scheduler is loaded, with busy tasks in the groups, hold from its first period on: a group
# of 20%, one of 10% below a group of 30%, beside spinners without a limit. Starts the scheduler itself.
#   make static guest
#   dist/plimsoll vm --timing --file dist/plimsoll --file target/guest/duty --file tests/live/limits-before.sh \
#     -- limits-before.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
failed=0

mkdir -p "$root/flat" "$root/free" "$root/above"
echo "+cpu" >"$root/above/cgroup.subtree_control"
mkdir "$root/above/below"
echo "20000 100000" >"$root/flat/cpu.max"
echo "30000 100000" >"$root/above/cpu.max"
echo "10000 100000" >"$root/above/below/cpu.max"
for group in flat above/below free; do
	duty --duration-ms 60000 --group $group --spin 4 >/dev/null &
done
sleep 1

read -r up _ </proc/uptime
echo "the kernel's own before: $(sed -n 's/^nr_throttled /throttled in /p' "$root/flat/cpu.stat") periods of flat"

usage_us() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }
clock_ms() {
	read -r up _ </proc/uptime
	echo $((${up%.*} * 1000 + 1${up#*.} * 10 - 1000))
}

plimsoll run >log 2>&1 &
scheduler=$!
# From the moment at which the kernel says so, which is before `plimsoll run` does.
until grep -q '^enabled' /sys/kernel/sched_ext/state; do usleep 2000; done
begin_ms=$(clock_ms)
for group in flat above/below; do usage_us $group; done >before

# Of each whole period so far the quota, one more for the period under way and the one that a group is given as it is
# taken over, and 5 ms per CPU for what is noticed late.
holds() { # MSEC
	took_ms=$(($(clock_ms) - begin_ms))
	{
		read -r flat_us
		read -r below_us
	} <before
	flat_ms=$((($(usage_us flat) - flat_us) / 1000)) below_ms=$((($(usage_us above/below) - below_us) / 1000))
	for one in "flat $flat_ms 20" "above/below $below_ms 10"; do
		# shellcheck disable=SC2086 # words
		set -- $one
		most=$(($3 * (took_ms / 100 + 2) + 5))
		least=$(($3 * (took_ms / 100 - 1)))
		verdict=holds
		if [ "$2" -gt $most ] || [ "$2" -lt $least ]; then
			verdict=MISSED
			failed=1
		fi
		printf '%-8s %s used %s ms in the first %s ms: allowed %s..%s\n' $verdict "$1" "$2" $took_ms $least $most
	done
}
for pause_ms in 200 300 1500; do
	usleep $((pause_ms * 1000))
	holds
done
grep -q '^plimsoll: scheduling' log || {
	cat log
	failed=1
}
kill -INT $scheduler
wait $scheduler || failed=1
exit $failed
