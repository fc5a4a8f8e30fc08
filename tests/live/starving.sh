#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# One CPU, 45 s: 300 threads in a group of weight 1 beside one in a group of weight 10000. They are due a turn of 3 ms each
# in two and a half hours, and the kernel ends a sched_ext scheduler that lets a thread wait for 30 s: any tenant could end it.
# The scheduler has to be there at the end, and the heavy thread to have had nine tenths of the CPU.
#   make static guest
#   dist/plimsoll vm --timing --cpus 1 --scheduler plimsoll --file target/guest/pressure \
#     --file tests/live/starving.sh -- starving.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
MSEC=45000

mkdir "$root/one" "$root/other"
echo 10000 >"$root/one/cpu.weight"
echo 1 >"$root/other/cpu.weight"
pressure spin other $MSEC 300 >other.out &
pressure spin one $MSEC >one.out
# The scheduler that was loaded has to be there still.
state=$(cat /sys/kernel/sched_ext/state)
read -r used longest <one.out
echo "$used of $MSEC ms, longest standstill $longest us; sched_ext: $state"
[ "$state" = enabled ] && [ "$used" -ge $((MSEC * 9 / 10)) ]
