#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A machine of 1,024 CPUs, as far as kernel and scheduler know, of which 0 and the last three are on line (plimsoll vm
# --possible-cpus 1024): limits, weights, a pinned task, a CPU that goes and comes, and groups by the hundred. The guest
# runs on the host's clock. A busy host keeps its CPUs from running, so limits are asked for by period and weights as
# shares, with wide bounds: equal shares would be 500, no limit 400 ms. How exact they are, `make bench-live` says.
root=/sys/fs/cgroup
failed=0

is() { # WHAT VALUE LOWEST HIGHEST
	if [ -n "$2" ] && [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; then
		echo "$1: $2"
	else
		echo "FAILED: $1: '$2', allowed $3..$4"
		failed=1
	fi
}

spin() { # GROUP COUNT [CPU]
	mkdir -p "$root/$1"
	for _ in $(seq "$2"); do
		sh -c "echo \$\$ >$root/$1/cgroup.procs; exec ${3:+taskset -c $3} sh -c 'while :; do :; done'" &
	done
}

# Reads the group's CPU time in us and its periods, into $usage and $periods.
look() {
	usage=$(sed -n 's/^usage_usec //p' "$root/$1/cpu.stat")
	periods=$(plimsoll status --cpu-stat "$root/$1" | sed -n 's/^nr_periods //p')
}

# CPU time of a group in a period, in us, over 6 s or as long as the shell is kept from noticing.
used() {
	look "$1"
	usage_before=$usage
	periods_before=$periods
	sleep 6
	look "$1"
	[ "$periods" -gt $((periods_before + 20)) ] && echo $(((usage - usage_before) / (periods - periods_before)))
}

drop() {
	for group in "$@"; do
		echo 1 >"$root/$group/cgroup.kill"
		until rmdir "$root/$group" 2>/dev/null; do sleep 0.05; done
	done
}

grep -q '^0,1021-1023$' /sys/devices/system/cpu/online || {
	echo "FAILED: on line: $(cat /sys/devices/system/cpu/online)"
	exit 1
}

spin limited 4
echo "20000 100000" >"$root/limited/cpu.max"
sleep 1
is "4 spinners on 20 ms/100 ms, us in a period" "$(used limited)" 15000 24000
drop limited

spin last 1 1023
echo "30000 100000" >"$root/last/cpu.max"
sleep 1
is "a spinner pinned to CPU 1023 on 30 ms/100 ms, us in a period" "$(used last)" 22000 36000
echo 0 >/sys/devices/system/cpu/cpu1023/online
is "with that CPU off line, us in a period" "$(used last)" 22000 36000
echo 1 >/sys/devices/system/cpu/cpu1023/online
drop last

# A slice that ends while its thread takes the CPU off line: a busy host makes many of them (see plimsoll_update_idle).
rounds=10
for _ in $(seq $rounds); do
	for cpu in 1021 1022 1023; do
		echo 0 >/sys/devices/system/cpu/cpu$cpu/online
		echo 1 >/sys/devices/system/cpu/cpu$cpu/online
	done
done
echo "three CPUs went and came $rounds times"

spin light 4
spin heavy 4
echo 100 >"$root/light/cpu.weight"
echo 300 >"$root/heavy/cpu.weight"
sleep 1
look light
light=$usage
look heavy
heavy=$usage
sleep 6
look light
light=$((usage - light))
look heavy
heavy=$((usage - heavy))
is "weights 100 and 300: the share of the first in 1/1000" $((light * 1000 / (light + heavy))) 180 320
drop light heavy

tries=200
for i in $(seq $tries); do
	mkdir "$root/many-$i"
	echo "1000 100000" >"$root/many-$i/cpu.max"
	(
		echo 0 >"$root/many-$i/cgroup.procs"
		exec sh -c 'i=0; while [ $i -lt 300 ]; do i=$((i + 1)); done'
	) &
done
for i in $(seq $tries); do
	until rmdir "$root/many-$i" 2>/dev/null; do sleep 0.05; done
done
echo "$tries limited groups came and went"
exit $failed
