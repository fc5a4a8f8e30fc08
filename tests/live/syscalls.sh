#!/bin/sh
# One process in system calls all the time, alone on its CPU, limited to 20% of it. Who is out of run time in a system
# call may not be parked, and slept on the idle CPU until something else woke that up: 2.4% on 6.19 once.
#   dist/plimsoll vm --timing --scheduler plimsoll --file tests/live/syscalls.sh -- syscalls.sh
# Exit: 0 it gets 19 to 21%, 1 it does not.
root=/sys/fs/cgroup

use() { sed -n 's/^usage_usec //p' $root/a/cpu.stat; }

mkdir $root/a
echo "20000 100000" >$root/a/cpu.max
sh -c "echo \$\$ >$root/a/cgroup.procs; exec taskset -c 3 dd if=/dev/zero of=/dev/null bs=1" &
sleep 2
used=$(use)
sleep 10
used=$((($(use) - used) / 10000))
kill $!
echo "used: $used of 1000"
[ $used -ge 190 ] && [ $used -le 210 ]
