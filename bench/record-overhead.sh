#!/usr/bin/env bash
# What recording costs the recorded: the CPU time of one round of a ping-pong at a fixed rate, without and with
# `plimsoll record`, in turn. Prints every run and the medians. Root, or CAP_BPF and CAP_PERFMON.
# usage: bench/record-overhead.sh [PAIRS]; builds what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-5} rate=50000 seconds=4
cargo build -q --release -p plimsoll
cargo build -q --release -p plimsoll-record --example switches
load=${CARGO_TARGET_DIR:-target}/release/examples/switches
plimsoll=${CARGO_TARGET_DIR:-target}/release/plimsoll
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
round() { sed -n 's/.* \([0-9]*\) ns of CPU.*/\1/p' <<<"$1"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
echo "date $(date -u +%F), kernel $(uname -r), $(nproc) CPUs, load average before $(cut -d' ' -f1 /proc/loadavg)"
for ((i = 1; i <= pairs; i++)); do
	off=$("$load" $rate $seconds)
	echo "off  $off"
	round "$off" >>"$out/off"
	(sleep 0.3 && exec "$plimsoll" record --duration ${seconds}s -o "$out/t.parquet") >"$out/report" &
	on=$("$load" $rate $seconds)
	wait
	echo "on   $on"
	sed 's/^/     /' "$out/report" | grep -v "$out"
	round "$on" >>"$out/on"
done
echo "a round's CPU time, what recording adds to it in each pair, ns, sorted:" \
	"$(paste "$out/off" "$out/on" | awk '{ print $2 - $1 }' | sort -n | tr '\n' ' ')"
echo "median CPU time of a round: off $(median <"$out/off") ns, on $(median <"$out/on") ns; load average after $(cut -d' ' -f1 /proc/loadavg)"
