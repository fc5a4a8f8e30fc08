#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A service beside a batch job of another group on one CPU, and below its share: what a request of it takes, from its release to
# its end, work included. The more threads a service has the less each of them weighs, and until 2026-11-25 the longer each had to
# have waited before it took the CPU: 99 of 100 within 6.9, 6.9 and 6.8 ms; the kernel's own scheduler 1.8, 6.2 and 1.0.
#   make static guest
#   dist/plimsoll vm --timing --cpus 1 --scheduler plimsoll --file target/guest/duty \
#     --file tests/live/beside-batch.sh -- beside-batch.sh
# Exit: 0 in time, 1 not.
failed=0

serve() { # THREADS WORK_US BATCH_WEIGHT MOST_US
	took=$(duty --duration-ms 10000 --group service --duty "$1" --work-us "$2" --think-us 5000 \
		--group batch --spin 2 --set "cpu.weight=$3" | grep -o '"latency_us":{[^}]*}')
	p99=$(echo "$took" | sed 's/.*"p99":\([0-9]*\).*/\1/')
	echo "$1 threads, $2 us of work, beside a batch job of weight $3: $took"
	if [ -z "$p99" ] || [ "$p99" -gt "$4" ]; then
		echo "FAILED: at most $4 us in 99 of 100 allowed"
		failed=1
	fi
}

serve 8 200 100 1500
serve 2 1000 100 3500
serve 16 100 50 1000
exit $failed
