#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Headroom of `plimsoll agent` beside 99 side groups that all run all the time: each has a part below 1% of the machine.
#   make static guest
#   dist/plimsoll vm --timing --kernel 6.12 --file target/guest/duty --file tests/live/agent-crowd.sh -- agent-crowd.sh
# Exit: 0 the side keeps to its budget, 1 it does not.
root=/sys/fs/cgroup
failed=0
echo +cpu >$root/cgroup.subtree_control
mkdir $root/pods $root/pods/web
echo +cpu >$root/pods/cgroup.subtree_control
plimsoll set $root/pods/web headroom_percent=30 >/dev/null
plimsoll agent >log 2>&1 &
agent=$!
until grep -q '^plimsoll: agent' log; do sleep 0.1; done
groups=
for pod in $(seq 99); do groups="$groups --group pods/$pod --spin 1"; done
# shellcheck disable=SC2086 # words
duty --duration-ms 600000 $groups >/dev/null &
spinners=$!
sleep 3
use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }
for step in 10:60 40:30 20:50; do
	load=${step%:*} wanted=${step#*:}
	duty --duration-ms 10000 --group pods/web --duty 4 --whole --pin --work-us $((load * 100)) --interval-us 10000 --leave >/dev/null &
	web=$!
	# A larger budget reaches the last of a hundred groups after two rounds of 2 s.
	sleep 5
	all=$(use pods) main=$(use pods/web)
	sleep 3
	all=$((($(use pods) - all) / 12000)) main=$((($(use pods/web) - main) / 12000))
	side=$((all - main))
	verdict=holds
	[ $side -ge $((wanted * 10 - 50)) ] && [ $side -le $((wanted * 10 + 50)) ] || verdict=FAILED failed=1
	echo "main asks for $load%: main $main, 99 side groups $side per mille of the machine, wanted $((wanted * 10)) +- 50: $verdict"
	wait $web
done
kill $spinners $agent
wait $agent
exit $failed
