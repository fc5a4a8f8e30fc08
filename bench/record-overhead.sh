#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What recording a service costs the machine, at 20,000 requests over TCP a second: one load, recorded for a second and left
# alone for a second, again and again; crates/record/examples/overhead.rs says how. Root.
# usage: bench/record-overhead.sh [PAIRS [REQUESTS_PER_SECOND [whole]]]; builds what it needs; 3 s a pair. BUILD_ONLY=1: only that.
# Exit: 0 below 1% beyond doubt, 1 not, 3 this machine cannot record.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build -q --release -p plimsoll-record --examples
[ -z "${BUILD_ONLY:-}" ] || exit 0
load() { cut -d' ' -f1 /proc/loadavg; }
echo "date $(date -u '+%F %H:%M UTC'), kernel $(uname -r), $(nproc) CPUs, load average before $(load)"
code=0
"${CARGO_TARGET_DIR:-target}/release/examples/overhead" "$@" || code=$?
echo "load average after $(load)"
exit $code
