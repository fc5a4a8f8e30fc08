# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the tests beside container runtimes say and wait with. Sourced: the guest has it in its PATH.
failed=0
fail() { echo "FAILED: $*"; failed=1; }
holds() { echo "holds: $*"; }
# until_so WHAT COMMAND...: waits for it, half a minute at most, or as many seconds as `patience` says.
until_so() {
	what=$1; shift
	end=$(($(date +%s) + ${patience:-30}))
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt $end ] || { fail "$what"; return 1; }
		sleep 0.1
	done
}
