#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Fuzzes the simulator and the policy in it: random machines against the invariants of crates/sim/tests/fuzz and
# crates/sim/src/engine/{check,ledger}.rs. Then breaks the policy on purpose, six times, and sees that it is noticed.
# Usage: fuzz.sh [SEEDS [FIRST]]. Exit: 0 all seeds clean and all mutations caught, 1 otherwise, 2 bad usage.
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=${1:-10000}
first=${2:-1}
if ! [[ $seeds =~ ^[0-9]+$ && $first =~ ^[0-9]+$ ]]; then
	echo "fuzz.sh: seeds and first must be whole numbers, not '$seeds' '$first'" >&2
	exit 2
fi

cargo build --release -p plimsoll-sim --example fuzz
target=${CARGO_TARGET_DIR:-target}
"$target"/release/examples/fuzz "$seeds" "$first"

# A lost return of a slice, a refill without its cap, a theft of a pinned task; lag lost at sleep, an entity weighed without
# keeping its lag, a debt forgotten at a move.
# A mutated build is run for as long as a violation takes: to compile it quickly is worth more than its speed.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
missed=0
for mutation in PL_MUTATE_LEAVE PL_MUTATE_REFILL PL_MUTATE_STEAL PL_MUTATE_LAG PL_MUTATE_WEIGH PL_MUTATE_DEBT; do
	env "$mutation=1" CARGO_TARGET_DIR="$target/mutated" cargo build --quiet --release -p plimsoll-sim --example fuzz
	if said=$("$target"/mutated/release/examples/fuzz "$seeds" "$first" 2>&1); then
		echo "$mutation was not noticed in $seeds seeds" >&2
		missed=1
	elif grep -q '^seed ' <<<"$said"; then
		echo "$mutation caught: $(grep -m 1 -A 1 '^seed ' <<<"$said" | tr '\n' ' ')"
	else
		echo "$mutation: the run failed for another reason: $(tail -n 1 <<<"$said")" >&2
		missed=1
	fi
done
exit $missed
