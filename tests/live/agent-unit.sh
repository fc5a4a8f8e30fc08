#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# packaging/plimsoll-agent.service under systemd itself: with its sandbox the agent writes limits, serves metrics, and puts
# the owners' values back when it is stopped and when it is killed.
#   make static
#   dist/plimsoll vm --timing --kernel 6.12 --file packaging/plimsoll-agent.service --file packaging/agent.toml \
#     --file /lib/systemd/systemd --file /usr/bin/systemctl --file tests/live/agent-unit.sh -- agent-unit.sh
# Exit: 0 all holds, 1 something does not.
units=/etc/systemd/system
load=/sys/fs/cgroup/system.slice/load.service
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

# No distribution here: what every unit asks for, and a place where words go.
mkdir -p $units/plimsoll-agent.service.d /usr/bin /var/tmp /home /etc/plimsoll
ln -sf /usr/local/bin/plimsoll /usr/bin/plimsoll
cp /usr/local/bin/plimsoll-agent.service $units
cp /usr/local/bin/agent.toml /etc/plimsoll
for target in sysinit basic shutdown default; do
	printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $target >$units/$target.target
done
printf '[Service]\nStandardOutput=append:/run/unit.log\nStandardError=append:/run/unit.log\n' >$units/plimsoll-agent.service.d/log.conf
printf '[Service]\nExecStart=/bin/sleep 100000\nCPUQuota=50%%\n' >$units/load.service

env container=vm unshare -p -f -m --mount-proc /usr/local/bin/systemd --system >/run/systemd.log 2>&1 &
ctl() { nsenter -t "$(pidof systemd)" -p -m systemctl "$@" 2>/run/ctl.log; }
up() { [ "$(ctl is-active default.target)" = active ]; }
if ! await 100 up; then
	say MISSED "systemd starts: $(cat /run/systemd.log /run/ctl.log)"
	exit 1
fi
# rule BURST_US: the first of the example, uncommented, for this service.
rule() {
	sed "s/^#\(\[\[\|burst_us\)/\1/; s|^#cgroup = \"/kubepods.*|cgroup = \"/system.slice/load.service\"|
		s/^burst_us = .*/burst_us = $1/; /^# Groups beside/,\$d" /usr/local/bin/agent.toml
}
burst() { cat $load/cpu.max.burst; }
max() { cat $load/cpu.max; }
max_is() { [ "$(max)" = "$1" ]; }
lent() { ! max_is "50000 100000"; }

ctl start load.service
is "a service has the limit that systemd gave it" "$(max)" "50000 100000"
chown -R 1000 $load

echo "== docs/src/how-to/roll-out.md, step by step"
ctl start plimsoll-agent.service
is "watch only: start ends well" $? 0
wget -q -O- http://127.0.0.1:9469/metrics | grep -q '^container_cpu_cfs_throttled_seconds_total{id="/system.slice/load.service"} 0'
is "and there are metrics" $? 0
is "and no limit is changed" "$(max) $(burst)" "50000 100000 0"
rule 50000 >new.toml
is "dry run: what would be changed is said" "$(plimsoll agent --dry-run --config new.toml)" \
	"$load: cpu.max.burst would become \`49999\`, now \`0\`"
is "and nothing is" "$(burst)" 0
cp new.toml /etc/plimsoll/agent.toml
ctl restart plimsoll-agent.service
is "one node: the burst is there" "$(burst)" 49999
ctl stop plimsoll-agent.service
is "back: the owner's value is" "$(burst)" 0
is "and the journal names nothing" "$(wc -l </run/plimsoll/agent.journal)" 1
ctl enable --now plimsoll-agent.service
is "all: it is enabled" "$(ctl is-enabled plimsoll-agent.service)" enabled
is "and the burst is there" "$(burst)" 49999
ctl disable --now plimsoll-agent.service
is "back: it is not" "$(ctl is-enabled plimsoll-agent.service)" disabled
is "and the owner's value is" "$(burst)" 0
is "and the journal names nothing" "$(wc -l </run/plimsoll/agent.journal)" 1

echo "== lending under the unit's sandbox"
rule 100000 >/etc/plimsoll/agent.toml
ctl start plimsoll-agent.service
is "start ends well" $? 0
await 20 lent
is "it lends above a user's own quota" $? 0
pid=$(pidof plimsoll)
is "no capability but CAP_DAC_OVERRIDE" "$(sed -n 's/^CapBnd:\t*//p' "/proc/$pid/status")" 0000000000000002
is "no new privileges" "$(sed -n 's/^NoNewPrivs:\t*//p' "/proc/$pid/status")" 1
is "system calls are filtered" "$(sed -n 's/^Seccomp:\t*//p' "/proc/$pid/status")" 2
wget -q -O- http://127.0.0.1:9469/metrics | grep -q 'plimsoll_burst_cap_seconds{id="/system.slice/load.service"} 0.1$'
is "metrics are served" $? 0
plimsoll status $load >/dev/null
is "status speaks to it" $? 0

ctl stop plimsoll-agent.service
is "stop ends well" $? 0
is "and the owner's limit is back" "$(max)" "50000 100000"

printf '[Service]\nRestart=no\n' >$units/plimsoll-agent.service.d/once.conf
ctl daemon-reload
ctl start plimsoll-agent.service
await 20 lent
is "it lends again" $? 0
kill -9 "$(pidof plimsoll)"
await 100 max_is "50000 100000"
is "killed: what it changed is put back" "$(max)" "50000 100000"
is "by the unit, which says so" "$(grep -c '^plimsoll: 1 groups of an earlier agent were put back' /run/unit.log)" 1
ctl stop plimsoll-agent.service
[ $missed = 0 ] || cat /run/unit.log
kill -9 "$(pidof systemd)"
exit $missed
