#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# CPUs 1 to 3 go off and come back in rounds under limits of 2/50 and 100/100 ms, then Ctrl-C: each CPU still does the
# work that its interrupts deferred, the limits hold, and the scheduler ends within a second. Starts it itself.
#   make static guest
#   dist/plimsoll vm --timing --file dist/plimsoll --file target/guest/duty --file tests/live/hotplug-limits.sh \
#     -- hotplug-limits.sh 30 1
# hotplug-limits.sh ROUNDS SEED [kernel]: with `kernel` under the kernel's own scheduler. The seed moves the switches.
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
rounds=$1
random=$2
own=$3
failed=0

say() {
	[ "$1" = holds ] || failed=1
	printf '%-8s %s\n' "$1" "$2"
}

# A pause of 0 to 40 ms.
pause() {
	random=$(((random * 1103515245 + 12345) & 2147483647))
	usleep $((random / 65536 % 41 * 1000))
}

usage_us() { sed -n 's/^usage_usec //p' "$root/$1/cpu.stat"; }
clock_ms() {
	read -r up _ </proc/uptime
	echo $((${up%.*} * 1000 + 1${up#*.} * 10 - 1000))
}
# How often deferred work ran on each CPU.
works() { sed -n 's/^ *IWI: *\([0-9 ]*[0-9]\).*/\1/p' /proc/interrupts; }

if [ "$own" != kernel ]; then
	plimsoll run >log 2>&1 &
	scheduler=$!
	until grep -q '^plimsoll: scheduling' log; do sleep 0.05; done
fi
mkdir "$root/small" "$root/large"
echo "2000 50000" >"$root/small/cpu.max"
echo "100000 100000" >"$root/large/cpu.max"
for group in small large small large; do
	duty --duration-ms 600000 --group $group --spin 2 >/dev/null &
done
sleep 1

begin_ms=$(clock_ms) small_us=$(usage_us small) large_us=$(usage_us large)
round=0
while [ $round -lt "$rounds" ]; do
	round=$((round + 1))
	for online in 0 1; do
		for cpu in 1 2 3; do
			echo $online >/sys/devices/system/cpu/cpu$cpu/online
			pause
		done
		pause
	done
	before=$(works)
	[ $round -lt "$rounds" ] || sleep 0.5
	if [ "$own" != kernel ] && [ $round = "$rounds" ]; then
		after=$(works)
		echo "deferred work run by each CPU so far: $before, half a second later: $after"
		# shellcheck disable=SC2086 # words
		set -- $after
		for count in $before; do
			[ "$1" -gt "$count" ] || say MISSED "a CPU ran no deferred work: its count stands at $count"
			shift
		done
	fi
done
took_ms=$(($(clock_ms) - begin_ms))
small=$((($(usage_us small) - small_us) / took_ms))
large=$((($(usage_us large) - large_us) / took_ms))
say holds "$rounds rounds in $took_ms ms"
# In thousandths of a CPU: 40 and 1,000. A tenth more is within a run's spread; less where CPUs were off.
for one in "small $small 40" "large $large 1000"; do
	# shellcheck disable=SC2086 # words
	set -- $one
	if [ "$2" -le $(($3 * 11 / 10)) ] && [ "$2" -ge $(($3 * 8 / 10)) ]; then
		say holds "$1 used $2 of $3"
	else
		say MISSED "$1 used $2 of $3"
	fi
done
if [ "$own" != kernel ]; then
	begin_ms=$(clock_ms)
	kill -INT $scheduler
	while kill -0 $scheduler 2>/dev/null && [ $(($(clock_ms) - begin_ms)) -lt 5000 ]; do usleep 10000; done
	took_ms=$(($(clock_ms) - begin_ms))
	if [ $took_ms -lt 1000 ]; then
		say holds "Ctrl-C ended it in $took_ms ms"
	else
		say MISSED "Ctrl-C: $took_ms ms, and it is in state $(sed -n 's/^State:\t*//p' /proc/$scheduler/status)"
	fi
fi
exit $failed
