#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Five spinners in a cpuset of two CPUs beside nine in one of six, of equal groups: each of the five is due 0.40 of a CPU, each of the nine
# 0.67. Then one more that may run anywhere, which weighs as much as one of the nine: it is due what they have, 0.60, and the five keep
# theirs. Prints thousandths of a CPU.
#   make static
#   dist/plimsoll vm --timing --cpus 8 --scheduler plimsoll --file tests/live/cpusets.sh -- cpusets.sh
# --scheduler none: the kernel's own.
# Exit: 0 each has what it is due within 5%, 1 one has not.
root=/sys/fs/cgroup
failed=0
echo "+cpu +cpuset" >$root/cgroup.subtree_control

start() { # GROUP
	sh -c "echo \$\$ >$root/$1/cgroup.procs; exec sh -c 'while :; do :; done'" &
}

spin() { # GROUP CPUS SPINNERS
	mkdir $root/$1
	echo $2 >$root/$1/cpuset.cpus
	echo +cpu >$root/$1/cgroup.subtree_control
	for i in $(seq $3); do
		mkdir $root/$1/$i
		start $1/$i
	done
}

now_us() { awk '{ printf "%d", $1 * 1000000 }' /proc/uptime; }

# Each spinner's run time so far, and the time.
use() { # GROUP...
	for group; do sed -n 's/^usage_usec //p' $root/$group/cpu.stat; done
	now_us
}

check() { # What is due to each of the five, and to each of the others: thousandths of a CPU
	before=$(use $all)
	sleep 4
	echo "$before $(use $all)" | xargs | awk -v five=$1 -v others=$2 '{
		n = NF / 2
		printf "due %d each of the five, %d each of the others:", five, others
		for (i = 1; i < n; i++) {
			share = ($(n + i) - $i) / ($NF - $n) * 1000
			due = i <= 5 ? five : others
			missed += share < 0.95 * due || share > 1.05 * due
			printf " %d", share
		}
		print ""
		exit missed > 0
	}' || failed=1
}

spin five 0-1 5
spin nine 2-7 9
all=$(cd $root && echo five/[0-9]* nine/[0-9]*)
sleep 1
check 400 667
mkdir $root/any
echo 11 >$root/any/cpu.weight
start any
all="$all any"
sleep 1
check 400 600
[ $failed = 0 ] || echo "FAILED: not within 5% of what is due"
exit $failed
