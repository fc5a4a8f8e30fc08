# SPDX-License-Identifier: Apache-2.0 OR MIT
"""CPU time of many simulations in one process of Python, beside that of `plimsoll sweep` on one thread. `make bench-wheel` runs this.

cost.py BINARY RUNS ROUNDS: the example `burst` with seeds 1 to RUNS, both in turn, ROUNDS times. What both take beside the simulations
(the interpreter's start; rows, keys and Parquet) is in. Exit 1: the median of the ratios is above 1.3.
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

RATIO_MAX = 1.3
CODE = "import plimsoll\nfor seed in range(1, {runs} + 1): plimsoll.simulate('burst', seed=seed)"


def cpu_s(command, **more):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(binary, runs, rounds):
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        spec = pathlib.Path(folder, "spec.toml")
        spec.write_text(f'scenario = "burst"\nseeds = {runs}\n')
        for number in range(rounds):
            own = cpu_s([sys.executable, "-c", CODE.format(runs=runs)])
            sweep = [binary, "sweep", spec, "--out", pathlib.Path(folder, str(number))]
            theirs = cpu_s(sweep, env={**os.environ, "RAYON_NUM_THREADS": "1"})
            ratios.append(own / theirs)
            print(f"{runs} simulations: Python {own:.2f} s, plimsoll sweep {theirs:.2f} s of CPU time: {ratios[-1]:.3f}", flush=True)
    median = statistics.median(ratios)
    print(f"median {median:.3f} ({min(ratios):.3f} to {max(ratios):.3f}); allowed: {RATIO_MAX}")
    return median > RATIO_MAX


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
