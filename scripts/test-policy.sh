#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The policy under every compiler that an engine uses: gcc and clang natively, clang for BPF, all without a warning;
# then its tests against the clang build (cargo's own run is against gcc's).
set -euo pipefail
cd "$(dirname "$0")/.."

# compiles HEADER COMPILER...
compiles() {
	local header=$1
	shift
	echo "#include \"${header#policy/}\"" | "$@" -std=gnu11 -Wall -Wextra -Werror -Ipolicy -x c -c -o /dev/null -O2 - || {
		echo "test-policy: $header does not compile with $*" >&2
		return 1
	}
}
export -f compiles

list=$(mktemp)
trap 'rm -f "$list"' EXIT
for header in policy/*.h policy/baseline/*.h; do
	for compiler in gcc clang-19; do
		for mode in "" -DPL_EXPORT "-DPL_SINGLE_THREADED -DNDEBUG"; do
			echo "$header $compiler${mode:+ $mode}"
		done
	done
	echo "$header clang-19 -target bpf -mcpu=v3"
done >"$list"
# shellcheck disable=SC2016 # the words are those of xargs
xargs -P "$(nproc)" -L 1 bash -c 'compiles "$@"' bash <"$list"
echo "test-policy: $(wc -l <"$list") compilations (gcc, clang, clang for BPF) without a warning"
CC=clang-19 cargo test --quiet --target-dir target/clang -p plimsoll-policy-sys
