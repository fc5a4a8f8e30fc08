#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make test`: every part in turn, each with its time; all of them run even if one fails.
# Ends with one line: N passed, N failed. Exit: 0 all passed, 1 otherwise.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
failures=()

# part NAME COMMAND...
part() {
	local name=$1 start=$SECONDS
	shift
	printf '\n== %s: %s\n' "$name" "$*"
	if "$@"; then
		passed=$((passed + 1))
		printf '== %s: passed (%d s)\n' "$name" $((SECONDS - start))
	else
		failed=$((failed + 1))
		failures+=("$name")
		printf '== %s: FAILED (%d s)\n' "$name" $((SECONDS - start))
	fi
}

# A build from nothing takes a fifth less without what would make the next one of the same crates quick. Where there is such a
# build, it is gone on with: the other kind would build everything anew.
[ -d "${CARGO_TARGET_DIR:-target}/debug/incremental" ] || export CARGO_INCREMENTAL=0

part policy scripts/test-policy.sh
part format make --no-print-directory fmt-check
part workspace scripts/with-clippy.sh cargo test --quiet --locked --workspace
part determinism scripts/determinism.sh

printf '\n'
for name in "${failures[@]}"; do
	printf 'failed: %s\n' "$name"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
