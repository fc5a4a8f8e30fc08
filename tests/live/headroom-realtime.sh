#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Real-time threads that wake up a thousand times a second on an otherwise idle machine do not end its idle time: beside
# a main group that wants 30% of the machine idle the side gets what that leaves it. Starts the scheduler itself, with
# windows of 1 s.
#   make static guest
#   dist/plimsoll vm --timing --file dist/plimsoll --file target/guest/duty --file /usr/bin/chrt \
#     --file tests/live/headroom-realtime.sh -- headroom-realtime.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup

echo "headroom_window_us = 1000000" >config.toml
plimsoll run --config config.toml >log 2>&1 &
until grep -q '^plimsoll: scheduling' log; do sleep 0.05; done
mkdir "$root/main" "$root/side"
for _ in 1 2 3 4; do
	sh -c "echo \$\$ >$root/side/cgroup.procs; while :; do :; done" &
done
chrt -f 10 duty --duration-ms 60000 --group realtime --duty 4 --pin --work-us 10 --interval-us 1000 >/dev/null &
plimsoll set "$root/main" headroom_percent=30
sleep 3

use() { sed -n 's/^usage_usec //p' "$root/side/cpu.stat"; }
before=$(use)
sleep 4
used=$(($(use) - before))
# 70% of four CPUs, less what the real-time threads take.
echo "side used $used us of 16000000"
if [ "$used" -lt 6000000 ] || [ "$used" -gt 11400000 ]; then
	echo "FAILED: allowed 6000000..11400000"
	exit 1
fi
