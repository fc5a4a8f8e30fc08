#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The policy under every compiler that an engine uses: gcc and clang natively, clang for BPF, all without a warning;
# then its tests against the clang build (cargo's own run is against gcc's).
set -euo pipefail
cd "$(dirname "$0")/.."

flags="-std=gnu11 -Wall -Wextra -Werror -Ipolicy -x c -c -o /dev/null"
count=0
for header in policy/*.h policy/baseline/*.h; do
	unit="#include \"${header#policy/}\""
	for compiler in gcc clang-19; do
		for mode in "" -DPL_EXPORT "-DPL_SINGLE_THREADED -DNDEBUG"; do
			# shellcheck disable=SC2086 # flags are words
			echo "$unit" | $compiler $flags -O2 $mode - || {
				echo "test-policy: $header does not compile with $compiler $mode" >&2
				exit 1
			}
			count=$((count + 1))
		done
	done
	# shellcheck disable=SC2086
	echo "$unit" | clang-19 -target bpf -mcpu=v3 $flags -O2 - || {
		echo "test-policy: $header does not compile for BPF" >&2
		exit 1
	}
	count=$((count + 1))
done
echo "test-policy: $count compilations (gcc, clang, clang for BPF) without a warning"
CC=clang-19 cargo test --quiet --target-dir target/clang -p plimsoll-policy-sys
