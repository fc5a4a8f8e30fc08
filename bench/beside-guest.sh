#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Situation (b) of bench/verify_services.py on another kernel: the Go service beside two spinning groups, recorded in a guest in
# virtual time, which other work does not disturb, and replayed here. An emulated CPU takes about as long for 50 ROUNDS as this
# machine's for 2,500, and for a request of the client's three times as long: hence a lower RATE.
# usage: bench/beside-guest.sh KERNEL TRACE [ROUNDS [SECONDS [RATE]]]; 50, 20 and 40. Needs dist/plimsoll (make static) and Go.
# Exit: 0 the self-check holds, 1 not.
set -euo pipefail
cd "$(dirname "$0")/.."
kernel=$1 trace=$2
bin=target/verify-plan
mkdir -p $bin/static
CGO_ENABLED=0 go build -o $bin/static/fanout bench/services/fanout.go
[ -x $bin/vegeta ] || GOBIN=$PWD/$bin go install "$(sed -n 's/^VEGETA = "\(.*\)"/\1/p' bench/verify_services.py)"
dist/plimsoll vm --timing --kernel "$kernel" --cpus 2 --timeout 1200 --file bench/services/beside.sh --file $bin/static/fanout \
	--file $bin/vegeta -- beside.sh "${3:-50}" "${4:-20}" "${5:-40}" >"$trace"
dist/plimsoll simulate --replay "$trace" --group /plimsoll-verify/service
