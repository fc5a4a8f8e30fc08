#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Five spinners in a cpuset of two CPUs beside nine in one of six: 0.40 of a CPU is due to each of the five, 0.67 to each of the nine.
# Prints thousandths of a CPU over 6 s. Plimsoll misses it, so it is no case of make test-live: docs/src/lab/live-shares.md.
#   make static
#   dist/plimsoll vm --timing --cpus 8 --scheduler plimsoll --file tests/live/cpusets.sh -- cpusets.sh
# --scheduler none: the kernel's own.
root=/sys/fs/cgroup
echo "+cpu +cpuset" >$root/cgroup.subtree_control

spin() { # GROUP CPUS SPINNERS
	mkdir $root/$1
	echo $2 >$root/$1/cpuset.cpus
	echo +cpu >$root/$1/cgroup.subtree_control
	for i in $(seq $3); do
		mkdir $root/$1/$i
		sh -c "echo \$\$ >$root/$1/$i/cgroup.procs; exec sh -c 'while :; do :; done'" &
	done
}

use() { # GROUP SPINNERS
	for i in $(seq $2); do sed -n 's/^usage_usec //p' $root/$1/$i/cpu.stat; done
}

spin five 0-1 5
spin nine 2-7 9
sleep 2
before="$(use five 5) $(use nine 9)"
sleep 6
after="$(use five 5) $(use nine 9)"
set -- $before
line=
for used in $after; do
	line="$line $(((used - $1) / 6000))"
	shift
done
echo "$line"
