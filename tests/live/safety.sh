#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What keeps a user safe: start-up probes, refusals, knobs that any process writes, restarts, the way back. Starts and
# stops the scheduler itself, with no more capabilities than packaging/plimsoll.service gives it.
#   make static guest
#   dist/plimsoll vm --timing --file dist/plimsoll --file target/guest/duty --file /usr/bin/setpriv \
#     --file tests/live/safety.sh -- safety.sh
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
missed=0

say() {
	[ "$1" = holds ] || missed=1
	printf '%-8s %s\n' "$1" "$2"
}

# what code text command...: the command ends with this code and says this.
refuses() {
	what=$1 code=$2 text=$3
	shift 3
	"$@" >out 2>&1
	got=$?
	if [ $got = "$code" ] && grep -qF "$text" out; then
		say holds "$what"
	else
		say MISSED "$what: exit code $got instead of $code, and: $(cat out)"
	fi
}

start() {
	: >log # what the last one said would count as this one's
	/usr/local/bin/setpriv --bounding-set -all,+bpf,+perfmon,+sys_admin,+sys_resource,+syslog plimsoll run >log 2>&1 &
	scheduler=$!
	until grep -q '^plimsoll: scheduling' log; do
		kill -0 $scheduler 2>/dev/null || {
			say MISSED "starts: $(cat log)"
			exit 1
		}
		sleep 0.02
	done
}

stop() {
	kill -INT $scheduler
	wait $scheduler
}

# A figure of a group, from the scheduler's status.
field() { plimsoll status "$root/$1" --json | sed "s/.*\"$2\":\([0-9]*\).*/\1/"; }
is() { if [ "$2" = "$3" ]; then say holds "$1"; else say MISSED "$1: $2 instead of $3"; fi; }

printf 'steal = 3\nslice_us = 0\n' >bad.toml
refuses "a bad configuration, with file, line, key, value and range" 2 \
	"bad.toml:2: slice_us = 0: allowed are whole numbers from 1 to 1000000" plimsoll run --check --config bad.toml
refuses "not root" 3 "not root" /usr/local/bin/setpriv --reuid=65534 plimsoll run --check
refuses "status without a scheduler" 3 "plimsoll run" plimsoll status
umount $root
refuses "cgroup v2 not mounted" 3 "cgroup v2 is not mounted" plimsoll run --check
mount -t cgroup2 cgroup2 $root
refuses "a machine that can" 0 "machine: good" plimsoll run --check

umask 0
start
is "the control socket is for root alone, whatever the umask" "$(stat -c %a /run/plimsoll.sock)" 600
stop
umask 022

mkdir $root/k $root/load
refuses "a knob out of range, with group, knob, value and range" 2 \
	"$root/k: headroom_percent=101: allowed are whole numbers from 0 to 100" \
	plimsoll set $root/k headroom_percent=101
refuses "an unknown knob" 2 "$root/k: unknown knob \"headrom\"" plimsoll set $root/k headrom=3
refuses "a cgroup that is not there" 2 "$root/none" plimsoll set $root/none burst_us=1
start
say holds "starts with the capabilities of the systemd unit"
refuses "another scheduler is loaded" 3 "another scheduler is loaded: plimsoll" plimsoll run

# Another tool writes attributes, while every CPU is busy. Burst is of a limit.
echo "50000 100000" >$root/k/cpu.max
duty --duration-ms 4000 --group load --spin 8 >/dev/null &
load=$!
sleep 0.5
duty --duration-ms 10 --start-ms 1 --group k --set user.plimsoll.burst_us=7000 --spin 1 >/dev/null
sleep 0.1
is "a knob written by another tool is applied within 100 ms, 8 spinners on 4 CPUs" "$(field k burst_us)" 7000
duty --duration-ms 10 --start-ms 1 --group k --set user.plimsoll.burst_us=lots --spin 1 >/dev/null
sleep 0.1
is "one that does not hold changes nothing" "$(field k burst_us)" 7000
is "and is said once" "$(grep -c "$root/k: burst_us=lots: allowed are whole numbers from 0 to" log)" 1
plimsoll set $root/k burst_us=9000
is "plimsoll set takes its place" "$(field k burst_us)" 9000
wait $load
kill -STOP $scheduler
refuses "a scheduler that hangs is waited for 10 s" 3 "has not answered" plimsoll status
kill -CONT $scheduler
stop
is "after Ctrl-C the kernel's own scheduler is back" "$(cat /sys/kernel/sched_ext/state)" disabled
# The kernel sets its weight back to 100 with the last of these, and tells a scheduler that is loaded later of 1000.
mkdir $root/was_idle
for knob in weight=1000 idle=1 idle=0; do echo "${knob#*=}" >$root/was_idle/cpu.${knob%=*}; done
start
share=$(duty --duration-ms 3000 --settle-ms 500 --group plain --set cpuset.cpus=0 --spin 1 \
	--group was_idle --set cpuset.cpus=0 --spin 1 | sed 's/.*"group":"was_idle".*"step_percent":\[\([0-9]*\).*/\1/')
if [ "$share" -ge 48 ] && [ "$share" -le 52 ]; then
	say holds "a group that was cpu.idle before it was loaded weighs what cpu.weight says: $share%"
else
	say MISSED "a group that was cpu.idle before it was loaded weighs what cpu.weight says: $share% (wanted 50)"
fi
is "knobs are kept across a restart" "$(field k burst_us)" 9000
# Of four CPUs that sleep, most of them all the while.
idle_us() {
	sum=0
	for idle in $(plimsoll status --json | grep -o '"idle_usec":[0-9]*' | cut -d: -f2); do sum=$((sum + idle)); done
	echo $sum
}
idle=$(idle_us)
sleep 2
idle=$((($(idle_us) - idle) / 1000))
if [ $idle -ge 7000 ] && [ $idle -le 8500 ]; then
	say holds "idle time counts while it lasts: $idle ms of 4 CPUs in 2 s"
else
	say MISSED "idle time counts while it lasts: $idle ms of 4 CPUs in 2 s"
fi
echo -cpu >$root/cgroup.subtree_control
echo +cpu >$root/cgroup.subtree_control
echo "50000 100000" >$root/k/cpu.max
sleep 0.2
is "and where the controller is switched off and on" "$(field k burst_us)" 9000

# The owner of a delegated cgroup may write its directory's attributes, but not its limits.
mkdir $root/theirs
chown 65534 $root/theirs
echo "50000 100000" >$root/theirs/cpu.max
refuses "knobs of a directory that is not root's" 2 \
	"$root/theirs: knobs of a directory of uid 65534, mode 755: allowed are those" plimsoll set $root/theirs burst_us=1
duty --duration-ms 10 --start-ms 1 --group theirs --set user.plimsoll.burst_us=7000 --spin 1 >/dev/null
sleep 0.1
is "do nothing" "$(field theirs burst_us)" 0
is "and that is said once" "$(grep -c "$root/theirs: knobs of a directory of uid 65534" log)" 1

# 20 ms of each window of 100 ms on 4 CPUs are 5% of the machine, 20% of a CPU; the default is 1 ms.
side() {
	duty --duration-ms 3000 --settle-ms 1000 --group main --duty 4 --whole --work-us 8000 --interval-us 10000 \
		--group side --spin 4 | sed 's/.*"group":"side".*"step_percent":\[\([0-9]*\).*/\1/'
}
mkdir $root/main
plimsoll set $root/main headroom_percent=30
small=$(side)
plimsoll set $root/main tolerance_us=20000
large=$(side)
if [ "$small" -le 4 ] && [ "$large" -ge 16 ] && [ "$large" -le 24 ]; then
	say holds "the side gets the tolerance: $small% of a CPU at 1 ms per 100 ms, $large% at 20 ms"
else
	say MISSED "the side gets the tolerance: $small% of a CPU at 1 ms per 100 ms, $large% at 20 ms (wanted 1, 20)"
fi
is "cpu-stat has the kernel's fields" "$(plimsoll status $root/k --cpu-stat | cut -d' ' -f1 | tr '\n' ' ')" \
	"$(cut -d' ' -f1 $root/k/cpu.stat | tr '\n' ' ')"
stop
plimsoll run --fallback-test >out 2>&1
is "fallback test: limits held before and after a failure, with a dump" "$?" 0
cat out
exit $missed
