#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sixty random machines, simulated by a debug and by a release build: every event's log must be the same.
# Exit: 0 the same, 1 not.
set -euo pipefail
cd "$(dirname "$0")/.."

digest() {
	"$@" --quiet --locked --test determinism -- --nocapture digest_of_many_runs |
		sed -n 's/.*digest \([0-9a-f]\{16\}\).*/\1/p' | sort
}

# Debug with the workspace's selection of features, which its tests have built; release with the little that it needs.
debug=$(digest scripts/with-clippy.sh cargo test --workspace)
# Optimization across crates takes as long as all the rest; of those within one no less is done.
release=$(CARGO_PROFILE_RELEASE_LTO=off digest cargo test --release -p plimsoll-sim)
echo "debug $debug, release $release"
[ -n "$debug" ] && [ "$debug" = "$release" ]
