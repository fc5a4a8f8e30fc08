#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Two groups of equal weight, each with a spinner on CPU 0; three more of the first worked on CPUs 1 to 3 before and are
# gone. Their load stayed in the group's sum for good once, and the group got 201 of 1,000.
#   dist/plimsoll vm --timing --scheduler plimsoll --file tests/live/left-load.sh -- left-load.sh
# Exit: 0 both get half, 1 they do not.
root=/sys/fs/cgroup

spin() { # GROUP CPU
	sh -c "echo \$\$ >$root/$1/cgroup.procs; exec taskset -c $2 sh -c 'while :; do :; done'" &
}

use() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }

mkdir $root/a $root/b
gone=
for cpu in 1 2 3; do
	spin a $cpu
	gone="$gone $!"
done
spin a 0
spin b 0
sleep 2
# shellcheck disable=SC2086 # words
kill $gone
sleep 1
a=$(use a) b=$(use b)
sleep 4
a=$(($(use a) - a)) b=$(($(use b) - b))
share=$((a * 1000 / (a + b)))
echo "share of a: $share of 1000"
[ $share -ge 480 ] && [ $share -le 520 ]
