#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Measures how fast the simulator is, and how much memory it takes, on this machine; SimSo runs the same two-task set
# beside it. Prints a table, and keeps the raw rows in bench/results/DATE.jsonl, after one that describes the machine.
# Exit: 0 done; SimSo is left out, and that is said, where it cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

simso_version=0.8.5
simso_ms=200000
cargo build --release -p plimsoll-sim --example bench
target=${CARGO_TARGET_DIR:-target}

mkdir -p bench/results
results=bench/results/$(date -u +%Y-%m-%dT%H%M%SZ).jsonl
printf '{"machine":"%s","cpus":%s,"rustc":"%s","commit":"%s","load":"%s"}\n' \
	"$(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo)" "$(nproc)" "$(rustc --version)" \
	"$(git rev-parse --short HEAD)" "$(cut -d ' ' -f 1 /proc/loadavg)" >"$results"

# One process for each case: the peak of one is not the next one's.
cases=$("$target"/release/examples/bench --list)
"$target"/release/examples/bench --header
for case in $cases; do
	"$target"/release/examples/bench "$results" "$case"
done

venv=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/simso-$simso_version
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import simso' 2>/dev/null; then
	rm -rf "$venv"
	if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "simso==$simso_version"; }; then
		echo "SimSo left out: it needs python3 with venv (Debian: python3-venv) and a package index" >&2
		exit 0
	fi
fi
row=$("$venv/bin/python" bench/simso_two_tasks.py "$simso_ms")
echo "$row" >>"$results"
python3 - "$results" <<'PYTHON'
import json, sys

rows = {row["case"]: row for row in map(json.loads, open(sys.argv[1])) if "case" in row}
ours, theirs = rows["two_tasks"], rows["simso_two_tasks"]
rate = lambda row: row["simulated_ns"] / 1e9 / row["cpu_s"]
print(f"two-task set: {rate(ours):,.0f} simulated s per CPU s; SimSo {rate(theirs):,.0f}; ratio {rate(ours) / rate(theirs):,.0f}")
print(f"raw results: {sys.argv[1]}")
PYTHON
