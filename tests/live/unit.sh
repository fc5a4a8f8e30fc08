#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# packaging/plimsoll.service under systemd itself, which is the first process of a PID namespace here: it starts, comes back
# after its death, holds the limits that systemd sets, and stops; with the capabilities of the unit and no others.
#   make static
#   dist/plimsoll vm --timing --file dist/plimsoll --file packaging/plimsoll.service --file /lib/systemd/systemd \
#     --file /usr/bin/systemctl --file tests/live/unit.sh -- unit.sh
# Exit: 0 all holds, 1 something does not.
units=/etc/systemd/system
missed=0

say() {
	[ "$1" = holds ] || missed=1
	printf '%-8s %s\n' "$1" "$2"
}
is() { if [ "$2" = "$3" ]; then say holds "$1"; else say MISSED "$1: $2 instead of $3"; fi; }
# await TRIES COMMAND...: tries so often, 0.1 s apart, until the command succeeds; its last result.
await() {
	tries=$1
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}
near() { if [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; then say holds "$1: $2"; else say MISSED "$1: $2, not in $3..$4"; fi; }

# No distribution here: what every unit asks for, and a place where words go.
mkdir -p $units/plimsoll.service.d /usr/bin /var/tmp /home
ln -sf /usr/local/bin/plimsoll /usr/bin/plimsoll
cp /usr/local/bin/plimsoll.service $units
for target in sysinit basic shutdown default; do
	printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $target >$units/$target.target
done
printf '[Service]\nStandardOutput=append:/run/unit.log\nStandardError=append:/run/unit.log\n' >$units/plimsoll.service.d/log.conf
printf '[Service]\nExecStart=/bin/sh -c "while :; do :; done"\nCPUQuota=20%%\n' >$units/load.service

env container=vm unshare -p -f -m --mount-proc /usr/local/bin/systemd --system >/run/systemd.log 2>&1 &
ctl() { nsenter -t "$(pidof systemd)" -p -m systemctl "$@" 2>/run/ctl.log; }
up() { [ "$(ctl is-active default.target)" = active ]; }
if ! await 100 up; then
	say MISSED "systemd starts: $(cat /run/systemd.log /run/ctl.log)"
	exit 1
fi

state() { cat /sys/kernel/sched_ext/state; }
state_is() { [ "$(state)" = "$1" ]; }
ctl start plimsoll.service
is "start ends well" $? 0
is "and then it schedules" "$(state)" enabled
pid=$(pidof plimsoll)
# CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_RESOURCE, CAP_SYSLOG.
is "no capability beyond the unit's" "$(sed -n 's/^CapBnd:\t*//p' "/proc/$pid/status")" 000000c401200000
is "no new privileges" "$(sed -n 's/^NoNewPrivs:\t*//p' "/proc/$pid/status")" 1

kill -9 "$pid"
await 100 state_is disabled
is "killed: the kernel's own scheduler is back" "$(state)" disabled
await 150 state_is enabled
is "and it is started again" "$(state)" enabled

# Hundredths of a percent of a CPU over whole periods of the limit: 5 s.
used() {
	usage=/sys/fs/cgroup/system.slice/load.service/cpu.stat
	before=$(sed -n 's/^usage_usec //p' $usage)
	sleep 5
	echo $((($(sed -n 's/^usage_usec //p' $usage) - before) / 500))
}
ctl start load.service
sleep 1
near "a service with CPUQuota=20%, hundredths of a percent" "$(used)" 1950 2050
ctl set-property --runtime load.service CPUQuota=50%
sleep 1
near "changed to 50% while it runs" "$(used)" 4900 5100

ctl stop plimsoll.service
is "stop ends well" $? 0
is "and the kernel's own scheduler is back" "$(state)" disabled
is "the service says so" "$(tail -n 1 /run/unit.log)" "plimsoll: the kernel's own scheduler is back"
is "nothing failed" "$(ctl show -p Result --value plimsoll.service)" success
kill -9 "$(pidof systemd)"
exit $missed
