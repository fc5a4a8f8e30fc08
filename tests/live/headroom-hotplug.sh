#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# CPUs go off and come back beside a main group that wants 30% of the machine idle: the side's budget stays what that
# leaves it. Starts the scheduler itself, with windows of 1 s, so that no window is missed.
#   make static guest
#   dist/plimsoll vm --timing --file dist/plimsoll --file tests/live/headroom-hotplug.sh -- headroom-hotplug.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
cpu=/sys/devices/system/cpu/cpu3/online

echo "headroom_window_us = 1000000" >config.toml
plimsoll run --config config.toml >log 2>&1 &
until grep -q '^plimsoll: scheduling' log; do sleep 0.05; done
mkdir "$root/main" "$root/side"
for _ in 1 2 3 4; do
	sh -c "echo \$\$ >$root/side/cgroup.procs; while :; do :; done" &
done
plimsoll set "$root/main" headroom_percent=30
sleep 4

# Smallest and largest budget of the windows of 3 s.
range() {
	least=999999999 most=0
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.3
		us=$(plimsoll status --json | sed 's/.*"side_budget_us":\([0-9]*\).*/\1/')
		[ "$us" -lt $least ] && least=$us
		[ "$us" -gt $most ] && most=$us
	done
}

# Of 3 or 4 CPUs: 2.1 or 2.8 s, and in the window in which one comes or goes a mean of them, give or take what it
# was missing for of that.
failed=0
for round in 1 2 3; do
	for online in 0 1; do
		echo $online >$cpu
		range
		echo "round $round, CPU 3 on line: $online: side budget $least..$most us"
		if [ "$least" -lt 1700000 ] || [ "$most" -gt 3200000 ]; then
			echo "FAILED: allowed 1700000..3200000"
			failed=1
		fi
	done
done
exit $failed
