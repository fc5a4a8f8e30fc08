# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the wheel does, in an environment that has it and, of the repository, one recording. `make test-wheel` runs this."""

import ast
import ctypes
import importlib.metadata
import inspect
import os
import pathlib
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
import pyarrow.parquet
import pytest

WEB = pathlib.Path(__file__).parent / "web.trace"
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
        for batch in (3, 10, 1000):
            assert plimsoll.sweep(POINTS, map=pool.map, batch=batch).parquet() == alone
    for bad in (0, -1, 1.5, True, "3"):
        with pytest.raises(ValueError, match="batch: .*; allowed: an int from 1 on"):
            plimsoll.sweep(POINTS, batch=bad)


def test_a_map_that_loses_doubles_or_turns_around_is_found():
    for bad, said in [
        (lambda f, points: map(f, points[1:]), "9 results for 10 points"),
        (lambda f, points: map(f, points + points[:1]), "11 results for 10 points"),
        (lambda f, points: map(f, points[::-1]), "result 0 is another point's"),
    ]:
        with pytest.raises(ValueError, match=said):
            plimsoll.sweep(POINTS, map=bad)
    for bad, said in [
        (lambda f, batches: map(f, batches[1:]), "7 results for 10 points"),
        (lambda f, batches: map(f, batches[:1] + batches), "13 results for 10 points"),
        (lambda f, batches: map(f, [batches[1], batches[0], *batches[2:]]), "result 0 is another point's"),
    ]:
        with pytest.raises(ValueError, match=said):
            plimsoll.sweep(POINTS, map=bad, batch=3)


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
    with pytest.raises(ValueError, match=r"points\[0\]: unknown key 'seeds'"):
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


def test_a_recording_is_a_table_of_events():
    trace = plimsoll.read_trace(WEB)
    assert trace.header["source"] == "bpf" and "/web" in [group["path"] for group in trace.header["groups"]]
    events = polars.DataFrame(trace.events)
    assert events.columns[:3] == ["ts_ns", "cpu", "kind"] and events["ts_ns"].is_sorted()
    # The file is Parquet, which others read as well. What later versions added is at the end, and not known of an older file.
    theirs = pyarrow.parquet.read_table(WEB)
    columns = theirs.column_names
    assert events.columns[: len(columns)] == columns
    for name in columns:
        assert events[name].to_list() == theirs[name].to_pylist(), name
    assert all(events[name].null_count() == len(events) for name in events.columns[len(columns) :])


def test_a_replay_shows_what_was_recorded_and_what_a_limit_makes_of_it():
    found = plimsoll.replay(str(WEB), set={"group.web.quota_us": 20_000})
    assert found.holds and found.group == "/web"
    recorded, replayed, changed = found.figures.rows()
    assert [recorded["run"], replayed["run"], changed["run"]] == ["recorded", "replayed", "changed"]
    assert abs(replayed["p50_ns"] / recorded["p50_ns"] - 1) < 0.1
    assert changed["throttled"] > 0.1 and changed["p99_ns.low"] > replayed["p99_ns"]
    requests = polars.DataFrame(found.requests)
    for row in found.figures.rows():
        own = requests.filter(requests["run"] == row["run"])["latency_ns"]
        assert len(own) == row["requests"] and own.max() == row["max_ns"]
    assert all(row["holds"] for row in found.checks.rows())
    again = plimsoll.replay([WEB], set={"group.web.quota_us": 20_000})
    assert again.figures.parquet() == found.figures.parquet()
    assert len(plimsoll.replay(WEB).figures) == 2


def test_a_plan_is_what_the_command_line_says():
    found = plimsoll.plan(WEB, "p99(request) < 50ms")
    assert found.verdict == "met-narrowly" and found.holds and found.group == "/web"
    assert found.goals == ["p99(request) < 50ms", "throttled < 25%"]
    rows = found.table.rows()
    assert rows[0]["what"] == "recommended" and rows[0]["goals.0.value"] < 50e6
    assert rows[0]["goals.0.low"] <= rows[0]["goals.0.middle"] <= rows[0]["goals.0.high"]
    assert str(rows[0]["quota_us"]) in found.settings["cgroup v1"]
    assert {row["what"] for row in rows} >= {"today", "next cheaper", "frontier", "Docker, systemd"}
    assert any("no setting is safe" in warning for warning in found.warnings)
    only = plimsoll.plan(WEB, ["p99(request) < 50ms"], target="kubernetes", max_cpus=1)
    assert only.settings.keys() == {"Kubernetes"}
    assert all(row.get("burst_us", 0) == 0 and row["period_us"] == 100_000 for row in only.table.rows())
    assert max(row["reserved_cpus"] for row in only.table.rows() if row["what"] == "frontier") <= 1.01


def test_what_is_wrong_with_a_recording_or_question_has_its_place_and_range(tmp_path):
    goal = "p99(request) < 50ms"
    cut = tmp_path / "cut.trace"
    cut.write_bytes(WEB.read_bytes()[:-100])
    text = tmp_path / "text.trace"
    text.write_text("no trace")
    for call, place, key, said in [
        (lambda: plimsoll.read_trace(cut), str(cut), "", "ends early"),
        (lambda: plimsoll.read_trace(tmp_path / "none"), str(tmp_path / "none"), "", "No such file"),
        (lambda: plimsoll.plan(text, goal), str(text), "", "expected"),
        (lambda: plimsoll.plan([], goal), "", "recordings", "allowed: one path or more"),
        (lambda: plimsoll.plan(WEB, []), "", "goals", "allowed: one or more"),
        (lambda: plimsoll.plan(WEB, "p99(request) < 50"), "", "goals", "at character 18 ns, us, ms, s"),
        (lambda: plimsoll.plan(WEB, "p99(nginx) < 50ms"), "", 'goal "p99(nginx) < 50ms": request', "allowed: request"),
        (lambda: plimsoll.plan(WEB, "p99.99(request) < 50ms"), "", "goals", "29956"),
        (lambda: plimsoll.plan(WEB, goal, target="mesos"), "", "target", "kubernetes+agent"),
        (lambda: plimsoll.plan(WEB, goal, max_cpus=0), "", "max_cpus", "0.01 to 4096"),
        (lambda: plimsoll.plan(WEB, goal, max_cpus=float("nan")), "", "max_cpus", "0.01 to 4096"),
        (lambda: plimsoll.plan(WEB, goal, min_throughput=101), "", "min_throughput", "0 to 100"),
        (lambda: plimsoll.plan(WEB, goal, group="/wb"), "", "group", "/web"),
        (lambda: plimsoll.plan(WEB, goal, request="nothing:"), "", "request", "allowed"),
        (lambda: plimsoll.plan([WEB, WEB], goal), "", f"{WEB}: recording", "the same one again"),
        (lambda: plimsoll.replay(WEB, set={"group.web.quota_us": 1}), "", "group.web.quota_us", "1000 to"),
        (lambda: plimsoll.replay(WEB, set={"group.web.quota": 1}), "", "group.web.quota", "quota_us"),
    ]:
        with pytest.raises(plimsoll.InputError) as caught:
            call()
        problems = caught.value.problems
        assert len(problems) == 1 and problems[0][:2] == (place, key) and said in problems[0][2], caught.value
        assert said in str(caught.value)
    with pytest.raises(TypeError, match="recordings: .*allowed: one path or more"):
        plimsoll.plan(7, goal)
    with pytest.raises(TypeError, match="goals: .*allowed: one or more"):
        plimsoll.plan(WEB, 7)


def test_plans_run_in_what_a_process_forks_and_end_by_ctrl_c():
    code = f"""
import os, plimsoll
goal = "p99(request) < 50ms"
whole = plimsoll.plan({str(WEB)!r}, goal).table.parquet()
child = os.fork()
if not child:
    os._exit(plimsoll.plan({str(WEB)!r}, goal).table.parquet() != whole)
assert os.waitpid(child, 0)[1] == 0
print("up", flush=True)
while True:
    plimsoll.plan({str(WEB)!r}, goal)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == b"up\n", child.stderr.read()
    time.sleep(0.2)
    began = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=20)
    assert b"KeyboardInterrupt" in said and child.returncode == -signal.SIGINT
    assert time.monotonic() - began < 5


def test_the_stubs_name_what_there_is():
    stubs = ast.parse((pathlib.Path(plimsoll.__file__).parent / "__init__.pyi").read_text())
    public = {node.name: node for node in stubs.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert set(plimsoll.__all__) - {"__version__"} == set(public) - {"Point", "_Needed"}
    for name, node in public.items():
        if isinstance(node, ast.FunctionDef):
            every = node.args.args + node.args.kwonlyargs
            assert list(inspect.signature(getattr(plimsoll, name)).parameters) == [arg.arg for arg in every], name
        elif name not in ("Point", "_Needed") and not issubclass(getattr(plimsoll, name), Exception):
            members = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
            there = {member for member in vars(getattr(plimsoll, name)) if not member.startswith("_")}
            assert there == {member for member in members if not member.startswith("_")}, name


def test_the_wheel_carries_the_terms_of_all_that_is_in_it():
    files = {path.name: path for path in importlib.metadata.files("plimsoll") if "licenses" in path.parts}
    assert {"NOTICE", "MIT.txt", "Apache-2.0.txt", "BSD-2-Clause.txt"} <= set(files)
    notice = files["NOTICE"].read_text()
    for name in ("pyo3 ", "arrow-array ", "parquet ", "rayon ", "Permission is hereby granted"):
        assert name in notice, name
    metadata = importlib.metadata.metadata("plimsoll")
    assert metadata["License-Expression"] == "Apache-2.0 OR MIT"
    assert "NOTICE" in metadata.get_all("License-File")
