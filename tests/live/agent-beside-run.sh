#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the kernel alone, `plimsoll agent` and, where the kernel has sched_ext, `plimsoll run` make of the same burst, headroom and
# latency, in one boot and one table. Starts agent and scheduler itself; below 60 s of the guest's time.
#   make static guest
#   dist/plimsoll vm --timing --kernel 7.2 --file dist/plimsoll --file target/guest/duty --file target/guest/turns \
#     --file tests/live/agent-beside-run.sh -- agent-beside-run.sh
# Requests are counted in turns of 0.12 ms of the emulator's CPUs (vm/guest/turns.c), and, without a bound, in its own of some 1 ms.
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
echo +cpu >$root/cgroup.subtree_control
failed=0
engines="kernel agent"
plimsoll run --check >/dev/null 2>&1 && engines="$engines run"

cat >config.toml <<'TOML'
[[group]]
cgroup = "/lent"
burst_us = 100000

[[group]]
cgroup = "/main"
headroom_percent = 30
TOML

begin() { # ENGINE
	: >log
	case $1 in
	kernel) return ;;
	agent)
		plimsoll agent --config config.toml >log 2>&1 &
		word=agent
		;;
	run)
		plimsoll run >log 2>&1 &
		word=scheduling
		;;
	esac
	engine=$!
	until grep -q "^plimsoll: $word" log; do
		kill -0 $engine 2>/dev/null || { cat log; echo "FAILED: $1 did not start"; exit 1; }
		sleep 0.05
	done
}
end() {
	[ "$1" = kernel ] && return
	kill -INT $engine
	wait $engine || { echo "FAILED: $1 ended with code $?"; cat log; failed=1; }
}
# knobs GROUP KNOB: of the scheduler, which reads no rules for groups; the agent has them from its file.
knobs() { [ "$engine_name" != run ] || plimsoll set "$root/$1" "$2" >/dev/null; }
# Groups are made anew for each engine, so that nothing of one is left for the next.
make() { for group; do mkdir "$root/$group"; done; }
clear() { for group; do until rmdir "$root/$group" 2>/dev/null; do sleep 0.02; done; done; }
group_of() { sed -n "s/.*\({\"group\":\"$1\".*\)/\1/p" result; }
# figure GROUP NAME: in whole units, as duty printed it.
figure() { group_of "$1" | sed -n "s/[^}]*\"$2\":\([0-9]*\).*/\1/p"; }
keep() { eval "$1_$engine_name=\$2"; }
kept() { eval "echo \${$1_$2:--}"; }

for engine_name in $engines; do
	begin "$engine_name"

	make lent
	knobs lent burst_us=100000
	# Released between two ticks of the agent's and the kernel's periods, and long enough for the buffer to be full.
	duty --duration-ms 3100 --start-ms 605 --group lent --set "cpu.max=30000 100000" --duty 1 --work-us 50000 --interval-us 207000 >result
	for rank in p50 p99; do keep burst_$rank "$(figure lent $rank)"; done
	case $engine_name in
	run) throttled=$(plimsoll status --json "$root/lent" | sed 's/.*"nr_throttled":\([0-9]*\).*/\1/') ;;
	*) throttled=$(sed -n 's/^nr_throttled //p' $root/lent/cpu.stat) ;;
	esac
	keep throttled "$throttled"
	clear lent

	if [ "$engine_name" = kernel ]; then
		turns 8192
		duty --duration-ms 2000 --group web --duty 4 --work-us 1000 --interval-us 10000 --stagger-us 2500 >result
		turns 0
		alone_mean=$(figure web mean) alone_p99=$(figure web p99)
		clear web
	else
		make main side
		knobs main headroom_percent=30
		duty --duration-ms 18000 --steps 6 --settle-ms 2000 --group main --duty 4 --pin --whole --interval-us 10000 \
			--work-us 3000,4000,5000,6000,7000,8000 --group side --spin 4 >result
		keep steps_side "$(group_of side | sed 's/[^[]*"step_percent":\[\([^]]*\)\].*/\1/' | tr ',' ' ')"
		clear main side
	fi

	for turns in 8192 0; do
		turns $turns
		make main side
		knobs main headroom_percent=30
		# The side has its budget when requests begin.
		duty --duration-ms 3000 --start-ms 200 --group side --spin 4 --group main --duty 4 --work-us 1000 --interval-us 10000 \
			--stagger-us 2500 --offset-us 1000000 >result
		keep web${turns}_mean "$(figure main mean)"
		keep web${turns}_p99 "$(figure main p99)"
		clear main side
	done
	end "$engine_name"
done

# The table. `must reach` is for the agent alone: what `run` reaches stands beside it, and has its own tests.
line() { printf '%-44s %9s %9s %9s %9s  %s\n' "$@"; }
three() { # WHAT NAME [MUST VERDICT]: of each engine
	line "$1" "$(kept "$2" kernel)" "$(kept "$2" agent)" "$(kept "$2" run)" "${3:--}" "${4:-}"
}
# holds VALUE LEAST MOST: prints the verdict, and marks the run as failed where it does not hold.
holds() {
	if [ "${1:--1}" -ge "$2" ] && [ "$1" -le "$3" ]; then verdict=holds; else verdict=FAILED failed=1; fi
}
# A part of the machine's CPUs in percent, from percent of one; and it times ten, whole.
percent() { awk "BEGIN { printf \"%.1f\", $1 / 4 }"; }
tenths() { awk "BEGIN { printf \"%d\", $1 * 2.5 + .5 }"; }

uname -r
line "" kernel agent run "must be" verdict
echo "50 ms of work each 207 ms on 30/100 ms, burst 100 ms"
holds "$burst_p50_agent" 50000 51000
three "  p50, us" burst_p50 "<= 51000" $verdict
three "  p99, us" burst_p99
# Nothing that run does not throttle; where there is no run, nothing.
holds "$throttled_agent" 0 "${throttled_run:-0}"
three "  periods throttled" throttled "as run" $verdict
[ "$throttled_kernel" -gt 0 ] || { echo "FAILED: the kernel alone throttles nothing: this shows nothing"; failed=1; }
echo "headroom 30%, of the machine, 2 to 3 s after each step of main"
step=0
for wanted in 30:40 40:30 50:20 60:10 70:1 80:1; do
	step=$((step + 1))
	for engine_name in ${engines#kernel }; do
		# shellcheck disable=SC2046 # words
		set -- $(kept steps_side $engine_name)
		shift $((step - 1))
		keep side "$(percent "$1")"
		[ $engine_name = run ] || tenths_agent=$(tenths "$1")
	done
	least=$((${wanted#*:} * 10 - 30))
	holds "$tenths_agent" $((least > 0 ? least : 0)) $((${wanted#*:} * 10 + 30))
	three "  main asks for ${wanted%:*}%: side, %" side "${wanted#*:} +- 3" $verdict
done
echo "requests of 1 ms each 10 ms in 4 threads beside 4 spinners, headroom 30%"
echo "  alone: mean $alone_mean us, p99 $alone_p99 us"
for rank in mean p99; do
	holds "$(kept web8192_$rank agent)" 0 "$(kept web8192_$rank kernel)"
	three "  $rank, us" web8192_$rank "<= kernel" $verdict
done
for rank in mean p99; do three "  $rank in turns of 1 ms, us" web0_$rank; done
if [ -n "${web0_mean_run:-}" ]; then
	for rank in mean p99; do
		agent=$(kept web8192_$rank agent) run=$(kept web8192_$rank run)
		holds $((agent * 100)) 0 $((run * 115))
		line "  $rank, times that of run" - "$(awk "BEGIN { printf \"%.2f\", $agent / $run }")" 1 "<= 1.15" $verdict
	done
fi
exit $failed
