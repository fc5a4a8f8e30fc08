#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How many measured runs lay inside the ranges that were predicted for them.

usage: bench/ranges_held.py [--points P] [--share S] [--cpus C] RESULTS...

RESULTS: directories that bench/verify_plan.py wrote. Ranges are taken as they were printed then, and widened by so much:
--points and --share for the share of throttled periods (percentage points, and a share of an end's distance from the
nearer of 0 and 100%; a range of 0 to 0 stays as it is), --cpus for CPU use (percent). docs/src/lab/plan.md says what plan itself
adds.
"""
import argparse
import json
import pathlib


def runs(directory):
    """Of each run: the ranges predicted for it, and what was measured."""
    for path in sorted(directory.glob("*.prediction.json")):
        predicted = json.loads(path.read_text())
        measured = json.loads(path.with_name(path.name.replace("prediction", "measured")).read_text())
        for setting, made in enumerate(measured["runs"]):
            for round_, run in zip(predicted["rounds"], made["measured"]):
                yield round_["predictions"][setting], run


def throttled(ends, points, share):
    low, high = ends["low"], ends["high"]
    if high == 0:
        return 0, 0
    more = lambda end: points + share * min(end, 100 - end)
    return max(low - more(low), 0), min(high + more(high), 100)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--points", type=float, default=0)
    parser.add_argument("--share", type=float, default=0)
    parser.add_argument("--cpus", type=float, default=0)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    # Figures went through JSON.
    inside = lambda low, value, high: low - 1e-9 <= value <= high + 1e-9
    for directory in args.results:
        all_runs, by_share, by_cpus, none, stayed_none = 0, 0, 0, 0, 0
        for predicted, run in runs(directory):
            all_runs += 1
            low, high = throttled(predicted["throttled"], args.points, args.share)
            by_share += inside(low, run["throttled"], high)
            cpus = predicted["cpus"]
            by_cpus += inside(cpus["low"] * (1 - args.cpus / 100), run["cpus"], cpus["high"] * (1 + args.cpus / 100))
            none += predicted["throttled"]["high"] == 0
            stayed_none += predicted["throttled"]["high"] == 0 and run["throttled"] == 0
        print(f"{directory.name}: of {all_runs} runs inside the range: throttled periods {by_share}, CPU use {by_cpus}; "
              f"foretold never to be throttled {none}, never were {stayed_none}")


main()
