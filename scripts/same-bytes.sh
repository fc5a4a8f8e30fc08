#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A debug and a release build give the same bytes, in results and in timelines. Exit: 0 they do, 1 otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --locked -p plimsoll
cargo build --quiet --locked --release -p plimsoll
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for scenario in limits busy; do
	for build in debug release; do
		"${CARGO_TARGET_DIR:-target}/$build/plimsoll" simulate "crates/cli/tests/golden/$scenario.toml" \
			--json "$out/$scenario.$build.json" --trace "$out/$scenario.$build.pftrace" >"$out/$scenario.$build.txt" 2>/dev/null
	done
	for kind in json pftrace txt; do
		cmp "$out/$scenario.debug.$kind" "$out/$scenario.release.$kind"
	done
done
