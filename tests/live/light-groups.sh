#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Light work has its share beside heavy work on many CPUs, and no more: spinners on each CPU of groups of weight 1000 and 100
# below one group, of nice 0 and 10 in one group, and of nested weights. First under the kernel's own scheduler, then under
# plimsoll, in one boot. Starts the scheduler itself.
#   make static
#   dist/plimsoll vm --timing --cpus 8 --file dist/plimsoll --file /usr/bin/nice --file tests/live/light-groups.sh -- light-groups.sh
# Exit: 0 nested shares are within 0.7 points of what is due, 1 one is not. The other two are printed: they miss
# (docs/src/lab/live-shares.md).
root=/sys/fs/cgroup
cpus=$(nproc)
failed=0

use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }

spin() { # GROUP NICE: a spinner for each CPU
	number=0
	while [ $number -lt "$cpus" ]; do
		nice -n "$2" sh -c "echo \$\$ >$root/$1/cgroup.procs; while :; do :; done" &
		pids="$pids $!"
		number=$((number + 1))
	done
}

group() { # PATH WEIGHT
	mkdir "$root/$1"
	echo +cpu >"$root/$1/cgroup.subtree_control" 2>/dev/null
	echo "$2" >"$root/$1/cpu.weight"
}

# What processes of a nice value used, in ticks.
ticks() {
	sum=0
	for pid in $pids; do
		# utime and nice, counted from behind the name
		line=$(sed 's/.*) //' "/proc/$pid/stat")
		# shellcheck disable=SC2086 # words
		set -- "$1" $line
		[ "${18}" = "$1" ] && sum=$((sum + ${13} + ${14}))
	done
	echo $sum
}

# Prints a share of 10,000, and holds plimsoll's against what is due.
says() { # WHAT PART WHOLE DUE [OFF]
	share=$(($2 * 10000 / $3))
	echo "  $1: $share of 10000 (due $4)"
	if [ "$scheduler" ] && [ "$5" ] && { [ $share -lt $(($4 - $5)) ] || [ $share -gt $(($4 + $5)) ]; }; then
		echo "  FAILED: more than $5 off"
		failed=1
	fi
}

ends() { # GROUP...: leaves first
	# shellcheck disable=SC2086 # words
	kill -9 $pids
	# shellcheck disable=SC2086
	wait $pids 2>/dev/null
	for name in "$@"; do until rmdir "$root/$name" 2>/dev/null; do sleep 0.05; done; done
	pids=
}

rows() {
	group pod 100
	group pod/heavy 1000
	group pod/light 100
	spin pod/heavy 0
	spin pod/light 0
	sleep 2
	light=$(use pod/light) whole=$(use pod)
	sleep 4
	says "weight 100 beside 1000 in one group" $(($(use pod/light) - light)) $(($(use pod) - whole)) 909
	ends pod/heavy pod/light pod

	group pod 100
	spin pod 0
	spin pod 10
	sleep 2
	light=$(ticks 10) whole=$(ticks 0)
	sleep 4
	light=$(($(ticks 10) - light)) whole=$(($(ticks 0) - whole))
	says "nice 10 beside 0 in one group" $light $((light + whole)) 970
	ends pod

	# Three times anew, and summed: of one start in some twenty a share is off by a point, by how its tasks come to lie.
	light=0 heavy=0 beside=0
	for _ in 1 2 3; do
		group pod 100
		group pod/heavy 800
		group pod/light 100
		group beside 100
		spin pod/heavy 0
		spin pod/light 0
		spin beside 0
		sleep 2
		light=$((light - $(use pod/light))) heavy=$((heavy - $(use pod/heavy))) beside=$((beside - $(use beside)))
		sleep 2
		light=$((light + $(use pod/light))) heavy=$((heavy + $(use pod/heavy))) beside=$((beside + $(use beside)))
		ends pod/heavy pod/light pod beside
	done
	says "nested, 800" $heavy $((light + heavy + beside)) 4444 70
	says "nested, 100" $light $((light + heavy + beside)) 556 70
	says "beside them" $beside $((light + heavy + beside)) 5000 70
}

echo "the kernel's own:"
rows
plimsoll run >log 2>&1 &
scheduler=$!
until grep -q '^plimsoll: scheduling' log; do sleep 0.05; done
echo "plimsoll:"
rows
kill -INT $scheduler
wait $scheduler
exit $failed
