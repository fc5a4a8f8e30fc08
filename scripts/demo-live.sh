#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The live part of `make demo`: container-like cgroups on a real kernel in QEMU, under the kernel's scheduler and under
# plimsoll. Needs dist/plimsoll (`make static`). Where no virtual machine can be had it says why, and succeeds.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

no_vm() {
	echo "The live part needs a virtual machine, and there is none here: $1"
	exit 0
}

# What the guest runs; it prints what duty printed, then the api's cpu.stat.
cat >"$folder/demo-guest.sh" <<'GUEST'
#!/bin/sh
set -e
cgroups=/sys/fs/cgroup
if [ -e /run/plimsoll.sock ]; then
	mkdir $cgroups/web $cgroups/api
	plimsoll set $cgroups/web headroom_percent=30 >/dev/null
	plimsoll set $cgroups/api headroom_percent=30 burst_us=100000 >/dev/null
fi
duty --duration-ms 8280 --settle-ms 1000 \
	--group web --duty 4 --work-us 1000 --interval-us 10000 --stagger-us 2500 \
	--group api --set 'cpu.max=30000 100000' --duty 1 --work-us 50000 --interval-us 207000 \
	--group batch --spin 4
if [ -e /run/plimsoll.sock ]; then
	plimsoll status $cgroups/api --cpu-stat
else
	cat $cgroups/api/cpu.stat
fi
GUEST
chmod +x "$folder/demo-guest.sh"

scripts/setup.sh >"$folder/setup" 2>&1 || no_vm "$(tail -n 1 "$folder/setup")"
make --no-print-directory guest >"$folder/guest" 2>&1 || no_vm "the guest's programs cannot be built: $(tail -n 1 "$folder/guest")"

# Fetches the kernel and QEMU if they are not in the cache, so that the two guests do not both do it.
dist/plimsoll vm --timing --verbose -- true 2>"$folder/first" || no_vm "$(tail -n 1 "$folder/first")"
declare -A guests
for scheduler in none plimsoll; do
	dist/plimsoll vm --timing --timeout 150 --scheduler $scheduler --file target/guest/duty \
		--file "$folder/demo-guest.sh" -- demo-guest.sh >"$folder/$scheduler" 2>"$folder/$scheduler.err" &
	guests[$scheduler]=$!
done
# There are virtual machines here, so what goes wrong now is a fault: no figure of it is to be printed.
for scheduler in none plimsoll; do
	wait "${guests[$scheduler]}" || {
		echo "demo: the guest under scheduler '$scheduler' ended with $?: $(tail -n 1 "$folder/$scheduler.err")" >&2
		kill "${guests[@]}" 2>/dev/null
		exit 1
	}
done

# of GROUP: what duty printed about it. value FILE GROUP NAME: a number of it.
value() { grep '^{' "$folder/$1" | sed "s/.*{\"group\":\"$2\"\(.*\)/\1/; s/,{\"group\".*//" | sed -n "s/.*\"$3\":\[*\([0-9.]*\).*/\1/p"; }
stat() { sed -n "s/^$2 //p" "$folder/$1"; }
line() {
	[ -n "$2" ] && [ -n "$3" ] || {
		echo "demo: no figure for '$1'" >&2
		exit 1
	}
	awk -v name="$1" -v a="$2" -v b="$3" -v by="$4" -v digits="$5" \
		'BEGIN { printf "  %-46s %12.*f %12.*f\n", name, digits, a / by, digits, b / by }'
}

cat <<TEXT

On a real kernel ($(sed -n 's/.*\(Linux [^ ]*\).*/\1/p' "$folder/first" | head -n 1), 4 CPUs, QEMU in virtual time), three cgroups at once:
  web    4 threads, a request of 1 ms every 10 ms, headroom 30% under plimsoll
  api    limit 30 ms per 100 ms, 50 ms of work every 207 ms, burst 100 ms under plimsoll (the kernel refuses more than 30)
  batch  4 spinning threads

TEXT
printf '  %-46s %12s %12s\n' "" "the kernel's" plimsoll
line "web: mean latency of a request, ms" "$(value none web mean)" "$(value plimsoll web mean)" 1000 2
line "web: p99, ms" "$(value none web p99)" "$(value plimsoll web p99)" 1000 2
line "api: median time of 50 ms of work, ms" "$(value none api p50)" "$(value plimsoll api p50)" 1000 1
line "api: p99, ms" "$(value none api p99)" "$(value plimsoll api p99)" 1000 1
line "api: periods throttled, of $(stat none nr_periods) and $(stat plimsoll nr_periods)" "$(stat none nr_throttled)" "$(stat plimsoll nr_throttled)" 1 0
line "batch: CPU used, % of the machine" "$(value none batch step_percent)" "$(value plimsoll batch step_percent)" 4 1
