# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the tests beside container runtimes say and wait with. Sourced: the guest has it in its PATH.
failed=0
fail() { echo "FAILED: $*"; failed=1; }
holds() { echo "holds: $*"; }
# until_so WHAT COMMAND...: waits for it, half a minute at most.
until_so() {
	what=$1; shift
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || { fail "$what"; return 1; }
		sleep 0.1
	done
}
