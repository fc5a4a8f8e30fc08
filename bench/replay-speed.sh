#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# How fast a trace is replayed on one CPU, and planned with on two. Goals: a trace of 30 s and 1 million switches in
# under 2 s, a plan of some 200 settings in under 3 minutes. Prints every run: the time that passed, and the CPU time.
# usage: bench/replay-speed.sh [RUNS [TRACE GROUP REQUEST]]; without TRACE one is made (crates/trace/examples/busy.rs).
# Exit: 0 goals held in every run, 1 not, 2 a run failed.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5} trace=${2:-} group=${3:-/web} request=${4:-client:client}
cargo build -q --release -p plimsoll
plimsoll=${CARGO_TARGET_DIR:-target}/release/plimsoll
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ -z "$trace" ]; then
	trace=$out/busy.trace
	cargo run -q --release -p plimsoll-trace --example busy "$trace" 1000000 30
fi
missed=0
TIMEFORMAT='%R %U %S'
# name, bound in seconds, CPUs, command: a line with what passed. plan and simulate exit with 1 where a figure misses.
timed() {
	local name=$1 bound=$2 cpus=$3 real user sys
	shift 3
	read -r real user sys < <({ time taskset -c "$cpus" "$@" >"$out/said" 2>"$out/error" || [ $? = 1 ]; } 2>&1)
	[ -s "$out/said" ] || { cat "$out/error" >&2; exit 2; }
	awk -v name="$name" -v bound="$bound" -v real="$real" -v cpu="$user" -v sys="$sys" 'BEGIN {
		printf "%-18s %7.2f s, %7.2f s of CPU time%s\n", name, real, cpu + sys, real < bound ? "" : "  MISSED: " bound " s wanted"
		exit !(real < bound) }' || missed=1
}
limit="--set=group.${group#/}.quota_us=40000"
echo "date $(date -u +%F), kernel $(uname -r), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo)," \
	"load average before $(cut -d' ' -f1 /proc/loadavg)"
"$plimsoll" simulate --replay "$trace" --group "$group" --request "$request" | head -3 | sed "s|^$out/||" || true
for ((i = 1; i <= runs; i++)); do
	timed "replay, one CPU" 2 0 "$plimsoll" simulate --replay "$trace" --group "$group" --request "$request"
	# The same, and 8 replays under a limit that makes the whole recording a queue.
	timed "and 8, limited" 18 0 "$plimsoll" simulate --replay "$trace" --group "$group" --request "$request" "$limit"
	timed "plan, two CPUs" 180 0,1 "$plimsoll" plan "$trace" --group "$group" --request "$request" --goal 'p99(request) < 20ms'
	sed -n 's/^\([0-9]* settings tried\).*/                   \1/p' "$out/said"
done
echo "load average after $(cut -d' ' -f1 /proc/loadavg)"
exit $missed
