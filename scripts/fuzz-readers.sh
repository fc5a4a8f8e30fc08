#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Fuzzes everything that reads what others wrote, with cargo-fuzz (installed when it is missing): each line of `runs` below is
# one corpus, with fuzz/seeds/CORPUS and the files named beside it as a beginning. What is found on the way is kept below
# target/fuzz, so that the next run goes on from there.
# The code is safe Rust, so no sanitizer is used and no nightly compiler is needed; overflows and assertions are checked.
# Usage: fuzz-readers.sh [SECONDS [CORPUS...]]. Exit: 0 nothing found, 1 an input is kept that breaks a reader, 2 bad usage,
# 3 no C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || {
	echo "fuzz-readers.sh: seconds must be a whole number, not '$seconds'" >&2
	exit 2
}
shift || true

# Corpus, target, longest input in bytes, more seeds.
runs="
script   trace     4096
series   trace     2048
perfetto trace     2048
parquet  trace     8192
events   events    2048
scenario scenario  4096 scenarios
machine  scenario  8192 machines
goal     goal       128
screen   screen    4096
agent    agent     1024
live     live      1024
nri      nri       1024
record   record    1024
"
wanted=" ${*:-$(awk '{ print $1 }' <<<"$runs" | xargs)} "
for name in $wanted; do
	grep -q "^$name " <<<"$runs" || {
		echo "fuzz-readers.sh: unknown corpus '$name'; known: $(awk '{ print $1 }' <<<"$runs" | xargs)" >&2
		exit 2
	}
done

command -v c++ >/dev/null || {
	echo "fuzz-readers.sh: no c++, which libFuzzer is built with; Debian: apt-get install g++" >&2
	exit 3
}
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz --version 0.13.2
target=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
cargo fuzz build --sanitizer none --target-dir "$target"
host=$(rustc -vV | sed -n 's/^host: //p')

failed=0
while read -r corpus name length more; do
	[[ -n $corpus && $wanted == *" $corpus "* ]] || continue
	found=$target/corpus/$corpus
	mkdir -p "$found" "$target/findings"
	seeds=()
	for folder in "fuzz/seeds/$corpus" $more; do
		if [ -d "$folder" ]; then seeds+=("$folder"); fi
	done
	if "$target/$host/release/$name" "$found" "${seeds[@]}" -max_total_time="$seconds" -max_len="$length" -timeout=10 \
		-rss_limit_mb=2048 -artifact_prefix="$target/findings/$corpus-" -print_final_stats=1 >"$target/$corpus.log" 2>&1; then
		echo "$corpus: $(sed -n 's/^stat::number_of_executed_units: *//p' "$target/$corpus.log") inputs in $seconds s, nothing found"
	else
		failed=1
		echo "$corpus: $(grep -m 1 -E 'panicked|ERROR' "$target/$corpus.log")" >&2
		grep -E 'Test unit written' "$target/$corpus.log" >&2 || true
	fi
done <<<"$runs"
exit $failed
