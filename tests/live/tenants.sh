#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A user with a delegated cgroup makes it too deep, and makes too many: nothing ends, the limits above hold, others have
# room, and what is not enforced is said by name. Starts and stops the scheduler itself.
#   make static guest
#   dist/plimsoll vm --timing --file dist/plimsoll --file /usr/bin/setpriv --file tests/live/tenants.sh -- tenants.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
missed=0

start() {
	: >/run/log # what the last one said would count as this one's
	plimsoll run "$@" >/run/log 2>&1 &
	scheduler=$!
	until grep -q '^plimsoll: scheduling' /run/log; do
		kill -0 $scheduler 2>/dev/null || {
			cat /run/log
			echo "MISSED it did not start"
			exit 1
		}
		sleep 0.02
	done
}
stop() {
	kill -INT $scheduler
	wait $scheduler
}
is() { if [ "$2" = "$3" ]; then echo "holds  $1"; else missed=1; echo "MISSED $1: $2 instead of $3"; fi; }
said() {
	sleep 0.3
	if grep -q "$2" /run/log; then echo "holds  $1"; else missed=1; echo "MISSED $1: not said: $2"; fi
}
tenant() { /usr/local/bin/setpriv --reuid=1000 --clear-groups "$@"; }
state() { cat /sys/kernel/sched_ext/state; }
merged() { plimsoll status --json | sed 's/.*"merged_cgroups":\([0-9]*\).*/\1/'; }
usage() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }
# what limit: of a CPU in percent, within 3 points, what a spinner in the cgroup $3 uses of the limit of $4.
uses() {
	sh -c 'echo $$ >"$0"/cgroup.procs; while :; do :; done' "$root/$3" &
	spinner=$!
	sleep 0.5
	before=$(usage "$4")
	sleep 3
	percent=$((($(usage "$4") - before) / 30000))
	kill $spinner
	wait $spinner 2>/dev/null
	if [ $percent -ge $(($2 - 3)) ] && [ $percent -le $(($2 + 3)) ]; then
		echo "holds  $1: $percent% of $2%"
	else
		missed=1
		echo "MISSED $1: $percent% of $2%"
	fi
}
delegate() {
	mkdir $root/theirs
	echo "20000 100000" >$root/theirs/cpu.max
	echo +cpu >$root/theirs/cgroup.subtree_control
	chown 1000 $root/theirs $root/theirs/cgroup.subtree_control $root/theirs/cgroup.procs
}
# shellcheck disable=SC2016 # for the tenant's shell
deepen='path=$0 level=1
	while [ $level -lt 34 ]; do
		level=$((level + 1))
		path=$path/level$level
		mkdir $path || exit 1
		[ $level = 34 ] || echo +cpu >$path/cgroup.subtree_control
	done
	echo "1000 100000" >$path/cpu.max
	echo $path'

start
delegate
path=$(tenant sh -c "$deepen" $root/theirs)
deepest=${path#"$root"/}
is "34 levels of a user's end nothing" "$(state)" enabled
said "a level too deep is said by name" '(level33) is scheduled as part of .*/level32, whose limits hold: it is 33 levels deep'
said "so is what is below" '(level34) is scheduled as part of .*/level32, .*: so is its parent'
said "a limit that is not enforced is said by name and value" '(level34) .*its cpu.max of 1000 100000 is not enforced'
is "status counts them" "$(merged)" 2
uses "the limit above holds in the deepest" 20 "$deepest" theirs
plimsoll status --prometheus | grep -q '^plimsoll_merged_cgroups 2\.0$'
is "metrics count them" $? 0
# Its tasks go along when it is asked to leave, and come back as it is loaded where the levels are there already.
stop
start
said "loaded where they are there, it says so again" '(level34) .*its cpu.max of 1000 100000 is not enforced'
uses "and the limit above holds" 20 "$deepest" theirs
while [ "$path" != $root ]; do
	rmdir "$path"
	path=${path%/*}
done
sleep 0.2
is "gone, they are no longer counted" "$(merged)" 0
# Nothing is to be enforced here, whatever the kernel takes for a burst.
mkdir $root/free
echo 18000000000000000 >$root/free/cpu.max.burst || exit 1
sleep 0.2
is "a burst without a limit ends nothing" "$(state)" enabled
rmdir $root/free
stop

echo 'max_groups = 64' >/run/few.toml
start --config /run/few.toml
delegate
# shellcheck disable=SC2016 # for the tenant's shell
tenant sh -c 'i=0; while [ $i -lt 80 ]; do i=$((i + 1)); mkdir $0/many$i || exit 1; done' $root/theirs
is "a user makes more groups than there are" $? 0
is "which ends nothing" "$(state)" enabled
is "half of the 64 are the user's, the rest are merged" "$(merged)" 48
said "the share is said" 'as part of .*/theirs, whose limits hold: a cgroup above it has its share'
uses "the user's limit holds in one that is merged" 20 theirs/many80 theirs
echo "7000 100000" >$root/theirs/many80/cpu.max
said "a limit that is set there is said by name and value" '(many80) .*its cpu.max was set; its cpu.max of 7000 100000 is not'
mkdir $root/other
echo "30000 100000" >$root/other/cpu.max
uses "there is room for others, whose limits hold" 30 other other
i=0
while [ $i -lt 40 ]; do
	i=$((i + 1))
	mkdir $root/full$i
done
is "all in use, too, ends nothing" "$(state)" enabled
said "and that is said" '(full40) is scheduled as part of /sys/fs/cgroup, whose limits hold: all of max_groups = 64 are in use'
rmdir $root/full* $root/theirs/many*
# The kernel lets go of them a little later.
sleep 1
mkdir $root/theirs/again
sleep 0.2
is "with room again a group is one of its own" "$(merged)" 0
echo "10000 100000" >$root/theirs/again/cpu.max
uses "and its limit holds" 10 theirs/again theirs/again
stop
[ $missed = 0 ] || cat /run/log
exit $missed
