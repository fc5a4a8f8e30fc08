# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sweeps on local clusters of Ray and Dask with two workers each. `make test-clusters` runs this.

clusters.py POINTS: for each, the bytes are those of one process, also when a worker is killed in the middle, and the overhead per
point (wall time less that of one process halved) is below 5 ms. Exit 1 otherwise.
"""

import os
import signal
import sys
import threading
import time

import plimsoll

OVERHEAD_MS = 5.0
# Points in a task: a scheduler that takes a few ms for each task has 200 of 10,000 points.
BATCH = 50
# What a killed worker takes along is run again; a cluster that gave up would raise instead.
KILLED_AFTER_S = 1.0


def points(count):
    return [{"scenario": "burst", "set": {"duration_ms": 20, "warmup_ms": 0}, "seed": seed} for seed in range(count)]


def timed(count, map):
    start = time.monotonic()
    table = plimsoll.sweep(points(count), map=map, batch=BATCH)
    return table.parquet(), time.monotonic() - start


def with_ray(count, alone):
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

    @ray.remote(max_retries=3)
    def run(function, point):
        return function(point)

    @ray.remote
    def process():
        time.sleep(0.2)
        return os.getpid()

    def ray_map(function, points):
        return ray.get([run.remote(function, point) for point in points])

    workers = set(ray.get([process.remote() for _ in range(4)]))
    check("ray", count, alone, ray_map, workers)
    ray.shutdown()


def with_dask(count, alone):
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:

        def dask_map(function, points):
            return client.gather(client.map(function, points))

        workers = set(client.run(os.getpid).values())
        check("dask", count, alone, dask_map, workers)


def check(name, count, alone, map, workers):
    assert len(workers) >= 2, workers
    alone_bytes, alone_s = alone
    bytes, wall_s = timed(count, map)
    same = bytes == alone_bytes
    overhead_ms = (wall_s - alone_s / 2) / count * 1000
    victim = sorted(workers)[0]
    killed = []

    def kill():
        try:
            os.kill(victim, signal.SIGKILL)
            killed.append(time.monotonic())
        except ProcessLookupError:
            pass

    timer = threading.Timer(min(KILLED_AFTER_S, wall_s / 3), kill)
    timer.start()
    after_kill, _ = timed(count, map)
    ended = time.monotonic()
    timer.join()
    in_the_middle = bool(killed) and killed[0] < ended
    print(
        f"{name}: {count} points in {wall_s:.1f} s ({alone_s:.1f} s on one process): {overhead_ms:.2f} ms overhead a point; "
        f"same bytes: {same}; a worker killed in the middle: {in_the_middle}, same bytes: {after_kill == alone_bytes}",
        flush=True,
    )
    if not (same and in_the_middle and after_kill == alone_bytes and overhead_ms < OVERHEAD_MS):
        sys.exit(1)


if __name__ == "__main__":
    count = int(sys.argv[1])
    alone = timed(count, map)
    with_ray(count, alone)
    with_dask(count, alone)
