#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Three spinners of equal weight share two CPUs while a fourth has another CPU to itself: each of the three gets a third. The fourth may
# run on that CPU only, then on the shell's, too. What it runs must not count as if it had company: the CPU of the one alone would be
# ahead of the others without end, which takes the differences between these away. Each has a group, and CPU 3 is the shell's.
#   make static
#   dist/plimsoll vm --timing --scheduler plimsoll --file /usr/bin/taskset --file tests/live/beside-alone.sh -- beside-alone.sh
# Exit: 0 it is so, 1 it is not.
root=/sys/fs/cgroup
failed=0
spinners=

use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }

spin() { # GROUP CPUS
	mkdir -p "$root/$1"
	sh -c "echo \$\$ >$root/$1/cgroup.procs; exec taskset -c $2 sh -c 'while :; do :; done'" &
	spinners="$spinners $!"
}

taskset -p 8 $$ >/dev/null
for cpus in 2 2,3; do
	for group in a b c; do spin $group 0,1; done
	spin alone $cpus
	sleep 1
	before_a=$(use a) before_b=$(use b) before_c=$(use c)
	sleep 8
	a=$(($(use a) - before_a)) b=$(($(use b) - before_b)) c=$(($(use c) - before_c))
	sum=$((a + b + c))
	echo "three on two CPUs beside one on $cpus: $((a / 1000)), $((b / 1000)) and $((c / 1000)) ms"
	for used in $a $b $c; do
		[ $((100 * used)) -ge $((32 * sum)) ] && [ $((100 * used)) -le $((35 * sum)) ] || failed=1
	done
	# Nor is one of the two CPUs idle meanwhile.
	[ $sum -ge 15000000 ] || failed=1
	# shellcheck disable=SC2086 # words
	kill $spinners
	spinners=
	sleep 0.03
done
[ $failed = 0 ] || echo "FAILED: due are a third each of 16 s"
exit $failed
