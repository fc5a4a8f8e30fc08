#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What `plimsoll agent` costs with 500 groups: CPU time and memory, at rest, as groups come and go, with loans and headroom.
# In virtual time an instruction takes 2 ns, several times what it takes on a machine of today. All groups rest: where another CPU is
# busy, its turns on the host's one thread count as the agent's time.
#   make static
#   dist/plimsoll vm --timing --kernel 6.12 --file tests/live/agent-cost.sh -- agent-cost.sh
# Exit: 0 all holds, 1 a case takes more than is allowed.
root=/sys/fs/cgroup
missed=0
echo +cpu >$root/cgroup.subtree_control
mkdir $root/pods $root/pods/web
echo +cpu >$root/pods/cgroup.subtree_control
# 100 pods of four containers, and one to come and go in.
pod() {
	mkdir $root/pods/$1
	echo +cpu >$root/pods/$1/cgroup.subtree_control
	for container in 1 2 3 4; do
		mkdir $root/pods/$1/$container
		echo "50000 100000" >$root/pods/$1/$container/cpu.max
	done
}
for pod in $(seq 99); do pod "$pod"; done

# measure WHAT SECONDS [MOST]: per mille of one CPU, at most; and memory.
measure() {
	before=$(cut -d ' ' -f 1 /proc/$agent/schedstat)
	sleep "$2"
	used=$((($(cut -d ' ' -f 1 /proc/$agent/schedstat) - before) / 1000))
	ppm=$((used / $2))
	printf '%-50s %2d.%03d%% of one CPU, %s kB\n' "$1" $((ppm / 10000)) $((ppm / 10 % 1000)) \
		"$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' /proc/$agent/status)"
	[ $ppm -le $((${3:-1000} * 1000)) ] || missed=1
}
start() {
	: >log
	plimsoll agent --config config.toml >>log 2>&1 &
	agent=$!
	until grep -q '^plimsoll: agent' log; do sleep 0.1; done
	sleep 2
}
stop() {
	kill $agent
	wait $agent
}
churn() {
	while :; do
		pod new
		sleep 1
		rmdir $root/pods/new/[1-4] $root/pods/new
		sleep 1
	done
}
cat >config.toml <<EOF
[[group]]
cgroup = "/pods/*/*"
burst_us = 20000
EOF
start
head -n 1 log
measure "burst of 396 containers, at rest" 60 5
churn &
churn=$!
measure "a pod of four containers comes or goes each second" 60 10
kill $churn
stop

cat >>config.toml <<EOF
[[group]]
cgroup = "/pods/1*/1"
burst_us = 80000
EOF
start
measure "11 of them lent above their quota, idle" 60 5
stop

plimsoll set $root/pods headroom_percent=30 >/dev/null
mkdir $root/batch
start
measure "headroom, one side group, and the loans" 60 5
stop
plimsoll set $root/pods headroom_percent=0 >/dev/null
plimsoll set $root/pods/web headroom_percent=30 >/dev/null
start
measure "headroom, 100 side groups, and the loans" 60 5
stop
exit $missed
