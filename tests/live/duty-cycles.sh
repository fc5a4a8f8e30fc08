#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Duty cycles under limits on the scheduler that runs, as rows that `plimsoll validate` reads: live against simulated.
#   make static guest
#   dist/plimsoll vm --timing --scheduler plimsoll --file target/guest/duty --file tests/live/duty-cycles.sh \
#     -- duty-cycles.sh >live.csv
#   dist/plimsoll validate --scheduler plimsoll live.csv
# The cases are those of ../shared/truth (a, b1, c), a burst above the quota, which the kernel refuses, and one thread
# whose work sweeps the period. Limits are set 105 ms before the first release, and the scheduler begins a period then:
# phase_us, where a period began, is 0 by definition. The thread whose work sweeps the period meets each of its 100 phases once.
set -e
root=/sys/fs/cgroup
cpus=$(nproc)
kernel=$(uname -r | cut -d. -f1,2)
nr=0

# One number that duty printed; what the scheduler has counted comes last.
printed() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" result; }

# label quota burst threads work interval spinners slow pin duration_ms; times in us
case_of() {
	nr=$((nr + 1))
	group=case$nr
	mkdir $root/$group
	plimsoll set $root/$group burst_us="$3" >/dev/null
	set -- "$@" "$([ "$9" = 1 ] && echo --pin || true)"
	duty --duration-ms "${10}" --start-ms 105 --group $group --set "cpu.max=$2 100000" --spin "$7" --slow "$8" \
		${11:+"${11}"} --duty "$4" --work-us "$5" --interval-us "$6" --leave --ask >result
	echo "$kernel,$cpus,1,$1,$2,100000,$3,0,$4,$5,$6,$7,$8,$9,${10},$(printed cpu_all_us),$(printed nr_periods),$(printed nr_throttled),$(printed throttled_usec),$(printed nr_bursts),$(printed burst_usec),$(printed p50),$(printed p99)"
}

echo "kernel,vcpus,rep,label,quota,period,burst,phase_us,nth,work,interval,spin,slow,pin,dur_ms,cpu_us,nr_periods,nr_throttled,throttled_usec,nr_bursts,burst_usec,p50,p99"
case_of a1_spin1_q50 50000 0 0 0 100000 1 0 0 2000
case_of a2_spinN_q50 50000 0 0 0 100000 "$cpus" 0 0 2000
case_of a3_spinN_qN50 $((cpus * 50000)) 0 0 0 100000 "$cpus" 0 0 2000
for burst in 0 $((cpus * 12500)) $((cpus * 25000)) $((cpus * 50000)); do
	case_of "b1_nN_w40_i200_b$burst" $((cpus * 25000)) "$burst" "$cpus" 40000 200000 0 0 0 3000
done
case_of c1_fib_k1_z0 10000 0 0 0 100000 1 0 1 3000
case_of c2_fib_k1_zN-1 10000 0 0 0 100000 1 $((cpus - 1)) 1 3000
for burst in 0 30000 100000; do
	case_of "d1_n1_w50_i207_b$burst" 30000 "$burst" 1 50000 207000 0 0 0 20700
done
