#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `plimsoll agent` on a kernel of any age with cgroup v2: burst by the kernel's file and by lending, headroom, and the way back.
#   make static guest
#   dist/plimsoll vm --timing --kernel 6.12 --file target/guest/duty --file tests/live/agent.sh -- agent.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
failed=0
fail() { echo "FAILED: $*"; failed=1; }
holds() { # GROUP FILE VALUE WHAT
	[ "$(cat "$root/$1/$2")" = "$3" ] || fail "$4: $1/$2 is $(cat "$root/$1/$2"), expected $3"
}
soon() { # GROUP FILE VALUE WHAT
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ "$(cat "$root/$1/$2")" = "$3" ] && return
		sleep 0.1
	done
	holds "$@"
}
start() {
	: >log
	plimsoll agent --config config.toml >>log 2>&1 &
	agent=$!
	until grep -q '^plimsoll: agent' log; do sleep 0.05; done
}
echo +cpu >$root/cgroup.subtree_control
mkdir $root/lent $root/kernels $root/main $root/side

echo "== burst above the quota: 50 ms of work each 207 ms on 30/100 ms"
duties() {
	duty --duration-ms 8000 --start-ms 105 --group lent --set "cpu.max=30000 100000" --duty 1 --work-us 50000 \
		--interval-us 207000 --leave >result
	echo "$1: $(grep -o '"latency_us":{[^}]*}' result) $(tr '\n' ' ' <$root/lent/cpu.stat | grep -o 'nr_periods.*')"
}
duties "no burst"
echo '[[group]]
cgroup = "/lent"
burst_us = 100000' >config.toml
plimsoll set $root/kernels burst_us=20000 >/dev/null
echo "30000 100000" >$root/kernels/cpu.max
plimsoll agent --dry-run --config config.toml
holds kernels cpu.max.burst 0 "a dry run"
start
holds kernels cpu.max.burst 19999 "the kernel's burst"
sleep 1
duties "100 ms of burst"
p50=$(sed -n 's/.*"p50":\([0-9]*\).*/\1/p' result)
[ "$p50" -le 51000 ] || fail "p50 $p50 us with burst: at most 51000 allowed"

echo "== one writer"
plimsoll agent 2>second && fail "a second agent runs"
cat second

echo "== the owner's own writes"
echo "40000 100000" >$root/lent/cpu.max
sleep 0.3
echo "10000 100000" >$root/kernels/cpu.max 2>/dev/null && echo "taken at once"
sleep 0.5
echo "10000 100000" >$root/kernels/cpu.max || fail "the owner's quota below the burst is refused again"
plimsoll status $root/lent
plimsoll set $root/kernels burst_us=5000 || fail "set"
plimsoll get $root/kernels
sleep 11
holds kernels cpu.max.burst 4999 "after the retreat"

echo "== kill -9, and the way back"
sleep 1
cat $root/lent/cpu.max
kill -9 $agent
wait $agent 2>/dev/null
plimsoll agent --restore || fail "restore"
holds lent cpu.max "40000 100000" "restored"
holds kernels cpu.max "10000 100000" "restored"
holds kernels cpu.max.burst 0 "restored"

echo "== headroom 30%"
plimsoll set $root/main headroom_percent=30 >/dev/null
echo 300 >$root/side/cpu.weight
start
soon side cpu.idle 1 "beside main"
kill -9 $agent
wait $agent 2>/dev/null
plimsoll agent --restore || fail "restore"
holds side cpu.idle 0 "restored"
holds side cpu.weight 300 "restored"
start
for _ in 1 2 3 4; do
	sh -c "echo \$\$ >$root/side/cgroup.procs; while :; do :; done" &
done
use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }
for step in 30:40 40:30 50:20 60:10 70:0 80:0; do
	load=${step%:*} wanted=${step#*:}
	duty --duration-ms 6000 --group main --duty 4 --whole --pin --work-us $((load * 100)) --interval-us 10000 --leave >/dev/null &
	duty=$!
	sleep 2
	side=$(use side) main=$(use main)
	sleep 3
	side=$((($(use side) - side) / 12000)) main=$((($(use main) - main) / 12000))
	echo "main asks for $load%: main $main, side $side per mille of the machine, wanted $((wanted * 10))"
	[ $side -ge $((wanted * 10 - 30)) ] && [ $side -le $((wanted * 10 + 30)) ] || fail "side at main $load%: $side per mille"
	wait $duty
done
soon side cpu.idle 1 "beside main"
echo 200 2>/dev/null >$root/side/cpu.weight && fail "Linux takes the weight of an idle group: the agent need not give it back"
sleep 0.5
echo 200 >$root/side/cpu.weight || fail "the owner's weight is refused again"
sleep 1
holds side cpu.idle 0 "whose weight its owner wrote"
kill $agent
wait $agent
cat log
holds side cpu.weight 200 "after the end"
holds side cpu.max "max 100000" "after the end"
holds main cpu.max "max 100000" "after the end"
exit $failed
