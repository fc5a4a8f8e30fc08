# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the wheel does, in an environment that has it and nothing of the repository. `make test-wheel` runs this."""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import plimsoll
import polars
import pyarrow
import pytest

SHORT = {"duration_ms": 200}
LONG = {"duration_ms": 3_600_000}


def burst(seed, burst_us=0):
    return {"scenario": "burst", "set": {**SHORT, "group.bench.burst_us": burst_us}, "seed": seed}


POINTS = [burst(seed, burst_us) for burst_us in (0, 100_000) for seed in range(1, 6)]


def test_a_run_is_a_table_of_one_row():
    table = plimsoll.simulate("burst", set=SHORT, seed=7)
    row = table.rows()[0]
    assert len(table) == 1
    assert table.column_names[:3] == ["set.duration_ms", "seed", "key"]
    assert row["seed"] == 7 and row["set.duration_ms"] == 200
    assert row["groups.bench.usage_ns"] > 0
    again = plimsoll.simulate("burst", set=SHORT, seed=7)
    assert again.parquet() == table.parquet()
    assert plimsoll.simulate("burst", set=SHORT, seed=8).parquet() != table.parquet()


def test_arrow_libraries_read_it():
    table = plimsoll.sweep(POINTS)
    arrow = pyarrow.table(table)
    assert arrow.num_rows == len(POINTS)
    assert arrow.to_pylist()[0].keys() == set(table.column_names)
    frame = polars.DataFrame(table)
    used = [row["groups.bench.usage_ns"] for row in table.rows()]
    assert frame["groups.bench.usage_ns"].to_list() == used == arrow["groups.bench.usage_ns"].to_pylist()


def test_arrow_shares_the_columns():
    table = plimsoll.sweep(POINTS)
    one, other = (pyarrow.table(table)["seed"].chunk(0).buffers()[1] for _ in range(2))
    assert one.address == other.address
    del table
    assert ctypes.string_at(one.address, 8) == (1).to_bytes(8, sys.byteorder)


def test_a_table_goes_through_pickle():
    table = plimsoll.sweep(POINTS)
    assert pickle.loads(pickle.dumps(table)).parquet() == table.parquet()


def test_every_map_gives_the_same_bytes():
    alone = plimsoll.sweep(POINTS).parquet()
    with ThreadPoolExecutor(2) as pool:
        assert plimsoll.sweep(POINTS, map=pool.map).parquet() == alone
    with ProcessPoolExecutor(2) as pool:
        assert plimsoll.sweep(POINTS, map=pool.map).parquet() == alone


def test_a_map_that_loses_doubles_or_turns_around_is_found():
    for bad, said in [
        (lambda f, points: map(f, points[1:]), "9 results for 10 points"),
        (lambda f, points: map(f, points + points[:1]), "11 results for 10 points"),
        (lambda f, points: map(f, points[::-1]), "result 0 is another point's"),
    ]:
        with pytest.raises(ValueError, match=said):
            plimsoll.sweep(POINTS, map=bad)


def test_errors_have_place_and_range():
    with pytest.raises(plimsoll.InputError, match="allowed") as caught:
        plimsoll.simulate("burst", set={"group.bench.period_us": 1})
    place, key, message = caught.value.problems[0]
    assert "--set" in place and key == "group.bench.period_us" and "allowed" in message
    with pytest.raises(plimsoll.InputError, match="burst"):
        plimsoll.simulate("birst")
    with pytest.raises(ValueError, match="seed: .*; allowed: 0 to"):
        plimsoll.simulate("burst", seed=2**63)
    with pytest.raises(TypeError, match="allowed: an int"):
        plimsoll.simulate("burst", set={"duration_ms": None})
    with pytest.raises(ValueError, match=r"points\[0\]: 'seeds' is no key"):
        plimsoll.sweep([{"scenario": "burst", "seeds": 3}])


def test_a_panic_leaves_the_interpreter_alone():
    with pytest.raises(plimsoll.PanicError, match="on purpose"):
        plimsoll._plimsoll._panic()
    assert len(plimsoll.simulate("burst", set=SHORT)) == 1


def test_other_threads_run_meanwhile():
    done = threading.Event()
    work = threading.Thread(target=lambda: (plimsoll.simulate("burst", set={"duration_ms": 20_000}), done.set()))
    work.start()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    work.join()
    assert turns > 5


def test_ctrl_c_ends_a_run():
    code = f"import plimsoll; print('up', flush=True); plimsoll.simulate('burst', set={LONG!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == b"up\n"
    time.sleep(0.3)
    assert child.poll() is None
    os.kill(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=20)
    assert b"KeyboardInterrupt" in said and child.returncode == -signal.SIGINT
