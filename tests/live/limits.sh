#!/bin/sh
# Limits and weights of real cgroups under the scheduler that runs: prints each figure beside what it must reach.
#   make static && dist/plimsoll vm --timing --scheduler plimsoll --file tests/live/limits.sh -- limits.sh
# Exit: 0 all within tolerance, 1 a figure missed it.
root=/sys/fs/cgroup
missed=0

usage() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }

# Since the machine started.
centiseconds() { sed 's/ .*//; s/\.//' /proc/uptime; }

# Starts $2 spinners in group $1.
spin() {
	count=$2
	while [ "$count" -gt 0 ]; do
		sh -c "echo 0 >$root/$1/cgroup.procs; while :; do :; done" &
		count=$((count - 1))
	done
}

stop() {
	while read -r pid; do kill -9 "$pid"; done <"$root/$1/cgroup.procs"
}

# name, measured, wanted, tolerance; all in hundredths of a percent.
check() {
	off=$(($2 - $3))
	[ "$off" -ge 0 ] || off=$((-off))
	verdict=holds
	[ "$off" -le "$4" ] || verdict=MISSED missed=1
	printf '%-44s %4d.%02d%%  wanted %d.%02d%%  within %d.%02d  %s\n' "$1" $(($2 / 100)) $(($2 % 100)) \
		$(($3 / 100)) $(($3 % 100)) $(($4 / 100)) $(($4 % 100)) "$verdict"
}

# Group a with limit $2 and $3 spinners over 5 s; wanted $4, tolerance $5.
quota() {
	echo "$2" >$root/a/cpu.max
	spin a "$3"
	sleep 0.5
	before=$(usage a) since=$(centiseconds)
	sleep 5
	# Beside spinners the shell itself is late by some 10 ms.
	check "$1" $((($(usage a) - before) / ($(centiseconds) - since))) "$4" "$5"
	stop a
	sleep 0.2
}

for group in a b c; do mkdir $root/$group; done
quota "20 ms/100 ms, 1 spinner" "20000 100000" 1 2000 20
quota "20 ms/100 ms, 4 spinners" "20000 100000" 4 2000 20
quota "1 ms/10 ms, 1 spinner" "1000 10000" 1 1000 30
quota "1 ms/10 ms, 4 spinners" "1000 10000" 4 1000 30
quota "150 ms/100 ms, 4 spinners" "150000 100000" 4 15000 150
echo max >$root/a/cpu.max

# Shares of groups a, b, c over 10 s, in hundredths of a percent of what they used together.
shares() {
	sleep 2
	a=$(usage a) b=$(usage b) c=$(usage c)
	sleep 10
	a=$(($(usage a) - a)) b=$(($(usage b) - b)) c=$(($(usage c) - c))
	sum=$((a + b + c))
	a=$((a * 10000 / sum)) b=$((b * 10000 / sum)) c=$((c * 10000 / sum))
}
echo 200 >$root/b/cpu.weight
echo 800 >$root/c/cpu.weight
for group in a b c; do spin $group 4; done
shares
check "weight 100 of 100/200/800, 4 spinners each" $a 909 50
check "weight 200" $b 1818 50
check "weight 800" $c 7273 50
for group in a b c; do stop $group; done
echo 100 >$root/b/cpu.weight
echo 100 >$root/c/cpu.weight
spin b 2
spin c 8
shares
check "2 spinners against 8, equal weights" $b 5000 200
for group in b c; do stop $group; done
exit $missed
