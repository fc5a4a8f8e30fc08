#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A debug build and the static release build, which is what packages ship and guests run, give the same bytes, in results
# and in timelines. Exit: 0 they do, 1 otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
# With the workspace's selection of features: what its tests have built is not built again.
scripts/with-clippy.sh cargo test --quiet --locked --workspace --no-run
make --no-print-directory static >/dev/null
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
declare -A binary=([debug]="${CARGO_TARGET_DIR:-target}/debug/plimsoll" [release]=dist/plimsoll)
for scenario in limits busy; do
	for build in debug release; do
		"${binary[$build]}" simulate "crates/cli/tests/all/golden/$scenario.toml" \
			--json "$out/$scenario.$build.json" --trace "$out/$scenario.$build.pftrace" >"$out/$scenario.$build.txt" 2>/dev/null
	done
	for kind in json pftrace txt; do
		cmp "$out/$scenario.debug.$kind" "$out/$scenario.release.$kind"
	done
done
