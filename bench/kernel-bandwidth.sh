#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs under limits of the kernel's own scheduler, on real kernels in virtual time, as a file that `plimsoll validate`
# reads. The runs are those of bench/kernel-bandwidth.cases, one boot for each kernel and number of CPUs.
#   make static guest
#   bench/kernel-bandwidth.sh 6.1 7.2 >bench/results/$(date -u +%F)-kernel-bandwidth.csv
# A kernel is a series that Debian has: 6.1, 6.12, 6.19, 7.2. About two minutes for each.
# usage: [CPUS="2 4"] [REP=1] [CASES=FILE] bench/kernel-bandwidth.sh KERNEL...
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
cases=${CASES:-bench/kernel-bandwidth.cases}
for needed in dist/plimsoll target/guest/bandwidth "$cases"; do
	[ -e "$needed" ] || { echo "$needed: missing; make static guest" >&2; exit 2; }
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
echo "kernel,vcpus,rep,label,quota,period,burst,phase_us,nth,work,interval,spin,slow,pin,dur_ms,cpu_us,nr_periods,nr_throttled,throttled_usec,nr_bursts,burst_usec,bursts,mean,p50,p90,p95,p99,p999,max"
for kernel in "$@"; do
	for cpus in ${CPUS:-$(awk '/^[0-9]/ && !seen[$1]++ { print $1 }' "$cases")}; do
		awk -v cpus="$cpus" '$1 == cpus { sub(/^[0-9]+ /, ""); print }' "$cases" >"$out/cases"
		[ -s "$out/cases" ] || { echo "$cases: no case of $cpus CPUs" >&2; exit 2; }
		dist/plimsoll vm --timing --kernel "$kernel" --cpus "$cpus" --timeout 1800 --file target/guest/bandwidth \
			--file "$out/cases" -- bandwidth /usr/local/bin/cases "${REP:-1}"
	done
done
