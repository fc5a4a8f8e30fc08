#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# In a guest (bench/beside-guest.sh): a service beside two spinning groups of its weight, asked at a constant rate by a client whose
# group weighs 100 times as much, over loopback. Writes the recording to the standard output, what the client saw to the other one.
# beside.sh ROUNDS SECONDS RATE
set -eu
top=/sys/fs/cgroup/plimsoll-verify
mkdir $top
echo "+cpu" >$top/cgroup.subtree_control
echo 10000 >$top/cpu.weight
for group in service client spinner-1 spinner-2; do mkdir $top/$group; done
echo 10000 >$top/client/cpu.weight

# in_group GROUP COMMAND...
in_group() {
	group=$1
	shift
	sh -c "echo \$\$ >$top/$group/cgroup.procs; exec \"\$@\"" sh "$@"
}

# attack SECONDS RATE
attack() {
	in_group client vegeta attack -targets /tmp/targets -duration "$1s" -rate "$2" -output /tmp/results
}

echo "GET http://127.0.0.1:17501/" >/tmp/targets
in_group service fanout 127.0.0.1:17501 "$1" >/dev/null 2>&1 &
sleep 1
attack 10 100
in_group spinner-1 sh -c 'while :; do :; done' &
in_group spinner-2 sh -c 'while :; do :; done' &
attack 6 "$3"
# To load the recorder takes seconds here: the client that is recorded begins after that.
in_group client plimsoll record --cgroup /plimsoll-verify/service --duration $(($2 + 3))s -o /tmp/beside.trace --json 2>/tmp/said >/tmp/report &
recorder=$!
until grep -q begins /tmp/said; do sleep 0.1; done
sleep 0.3
attack "$2" "$3"
wait $recorder
grep -A8 '"requests"' /tmp/report >&2
vegeta report /tmp/results >&2
cat /tmp/beside.trace
