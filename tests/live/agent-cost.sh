#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What `plimsoll agent` costs with 500 groups: CPU time and memory, at rest, as groups come and go, and beside 397 groups that run.
# In virtual time an instruction takes 2 ns, several times what it takes on a machine of today. On one CPU: with several, another
# one's turns on the host's one thread would count as the agent's time.
#   make static guest
#   dist/plimsoll vm --timing --kernel 6.12 --cpus 1 --file target/guest/duty --file tests/live/agent-cost.sh -- agent-cost.sh
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

# Each container runs 0.3 ms each 250 ms, web 1 ms each 20 ms: some 60% of the CPU with what it costs to wake them.
offset=0 words=
for pod in $(seq 99); do
	for container in 1 2 3 4; do
		offset=$((offset + 631))
		words="$words --group pods/$pod/$container --duty 1 --work-us 300 --interval-us 250000 --offset-us $offset"
	done
done
# shellcheck disable=SC2086 # words
duty --duration-ms 600000 --start-ms 5000 $words --group pods/web --duty 1 --work-us 1000 --interval-us 20000 >/dev/null &
duty=$!
sleep 7
start
measure "the same beside all of them running" 20 5
stop
plimsoll set $root/pods/web headroom_percent=0 >/dev/null
start
measure "the loans alone" 20 5
stop
kill $duty
# Two groups on 10 of 100 ms use 25 ms each 250 ms, out of what they saved.
for container in 1 2; do echo "10000 100000" >$root/pods/10/$container/cpu.max; done
cat >config.toml <<EOF
[[group]]
cgroup = "/pods/10/[12]"
burst_us = 40000
EOF
duty --duration-ms 600000 --group pods/10/1 --duty 1 --work-us 25000 --interval-us 250000 \
	--group pods/10/2 --duty 1 --work-us 25000 --interval-us 250000 --offset-us 111000 >/dev/null &
duty=$!
sleep 2
start
measure "two of them using what they saved" 20 5
stop
kill $duty
exit $missed
