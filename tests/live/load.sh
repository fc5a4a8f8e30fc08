#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Loads the scheduler: prints what the kernel's verifier walked for each program, and the miss where that takes more than the 2 s of
# virtual time that are wanted (docs/src/lab/eevdf.md says what takes the rest). Fails at 3.5 s: it is not to grow.
plimsoll run --verifier-cost >/run/load.log 2>&1 &
scheduler=$!
until grep -q '^plimsoll: scheduling' /run/load.log; do
	kill -0 $scheduler 2>/dev/null || {
		cat /run/load.log
		exit 1
	}
	sleep 0.05
done
kill -INT $scheduler
wait $scheduler
code=$?
cat /run/load.log
hundredths=$(sed -n 's/.*loaded in \([0-9]*\)\.\([0-9]*\) s.*/\1\2/p' /run/load.log | sed 's/^0*//')
if [ -z "$hundredths" ] || [ "$hundredths" -ge 350 ]; then
	echo "FAILED: loading took longer than 3.5 s"
	exit 1
fi
[ "$hundredths" -lt 200 ] || echo "MISSED: loading took longer than 2 s"
exit $code
