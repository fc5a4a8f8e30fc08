# SPDX-License-Identifier: Apache-2.0 OR MIT
# `plimsoll agent --labels` beside a container runtime: what a container is labelled with is held soon after it runs, survives a resize,
# and is gone when the agent is. Sourced after checks.sh by what has begun the runtime and says, in functions and variables:
#   container NAME [--rm]... [$label KEY=VALUE]...   begins one with 50000 of 100000 us
#   cgroup NAME    its cgroup             resize NAME QUOTA_US    as the runtime's user does it
#   remove NAME... ends them              $runtime  $label  $image  its name, its flag for a label, the image as metrics have it
root=/sys/fs/cgroup
files() { echo "$(cat "$1/cpu.max") $(cat "$1/cpu.max.burst")"; }
# are NAME FILES
are() { [ "$(files "$(cgroup "$1")")" = "$2" ]; }
metrics() { wget -qO- http://127.0.0.1:9469/metrics | grep '^container_cpu_usage_seconds_total'; }
named() { metrics | grep "name=\"$1\"" | grep -q "image=\"$image\""; }
said() { grep -q "$1" /logs/agent; }

labels_are_held() {
	container before --rm "$label" plimsoll.dev/burst-us=10000
	plimsoll agent --labels --listen 9469 >/logs/agent 2>&1 &
	agent=$!
	until_so "the agent does not start: $(tail -3 /logs/agent)" plimsoll status
	until_so "a container that ran before the agent has $(files "$(cgroup before)")" are before "50000 100000 9999" &&
		holds "a container that ran before the agent has its burst"
	container after "$label" plimsoll.dev/burst-us=20000
	until_so "a container that came after it has $(files "$(cgroup after)")" are after "50000 100000 19999" &&
		holds "a container that came after it has its burst"
	until_so "no metric names the container and its image: $(metrics | head -3)" named after &&
		holds "metrics name the container and its image"
	container plain
	container wrong "$label" plimsoll.dev/burst-us=many "$label" plimsoll.dev/period-us=10000 "$label" plimsoll.dev/headroom-percent=50
	for text in "container wrong: plimsoll.dev/burst-us=many: allowed are whole numbers from 0 to" \
		"container wrong: plimsoll.dev/period-us: only with --nri" \
		"container wrong: plimsoll.dev/headroom-percent=50: containers may not set it"; do
		until_so "it is not said: $text; but $(cat /logs/agent)" said "$text"
	done
	sleep 1
	{ are plain "50000 100000 0" && are wrong "50000 100000 0"; } || fail "without a right label there is $(files "$(cgroup plain)"), $(files "$(cgroup wrong)")"
	holds "wrong labels are named, and change nothing"
	# The kernel refuses a quota below the burst: the agent gives the burst back, and the next try succeeds.
	resize after 10000 2>/dev/null || { sleep 1; resize after 10000 || fail "a resize below the burst is refused twice"; }
	until_so "after the resize there is $(files "$(cgroup after)")" grep -q -v "^50000" "$(cgroup after)/cpu.max"
	resize after 40000 || fail "a resize upwards is refused"
	sleep 12
	are after "40000 100000 19999" || fail "12 s after the resize there is $(files "$(cgroup after)")"
	holds "resizes go through, and the burst comes back"
	remove before plain wrong
	kill "$agent"; wait "$agent"
	are after "40000 100000 0" || fail "after the agent there is $(files "$(cgroup after)")"
	left=$(plimsoll agent --restore 2>&1)
	[ "$left" = "plimsoll: 0 groups of an earlier agent were put back" ] || fail "after its end the journal leaves: $left"
	holds "after the agent the files are as $runtime left them"
	if [ $failed = 0 ]; then echo "all holds"; else cat /logs/agent; exit 1; fi
}
