#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# One process in system calls all the time, alone on its CPU, limited to 20% of it: short calls, and calls so long that it
# is hardly ever seen in user space. A task that is out of run time in a system call may not be parked. It slept on the
# idle CPU until something else woke that up (2.4% on 6.19 once), and was looked at every 50 us (2,500 switches a
# second).
#   dist/plimsoll vm --timing --scheduler plimsoll --file tests/live/syscalls.sh -- syscalls.sh
# Exit: 0 it gets 19 to 21% and is switched 100 times a second at most, 1 it does not.
root=/sys/fs/cgroup
missed=0

use() { sed -n 's/^usage_usec //p' $root/$1/cpu.stat; }
calls() { sed -n 's/^syscr: //p' /proc/$1/io; }
switches() { sed -n 's/^nonvoluntary_ctxt_switches:[^0-9]*//p' /proc/$1/status; }

for bytes in 1 262144; do
	mkdir $root/a$bytes
	echo "20000 100000" >$root/a$bytes/cpu.max
	sh -c "echo \$\$ >$root/a$bytes/cgroup.procs; exec taskset -c 3 dd if=/dev/zero of=/dev/null bs=$bytes" &
	sleep 2
	used=$(use a$bytes) switched=$(switches $!) called=$(calls $!)
	sleep 10
	used=$((($(use a$bytes) - used) / 10000)) switched=$((($(switches $!) - switched) / 10)) called=$(($(calls $!) - called))
	kill $!
	echo "dd bs=$bytes used $used of 1000, was switched $switched times a second and read $called times"
	[ $used -ge 190 ] && [ $used -le 210 ] && [ $switched -le 100 ] || missed=1
done
exit $missed
