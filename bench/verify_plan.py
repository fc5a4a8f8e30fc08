#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Predict, then verify: real services under real CPU limits against what their trace foretold.

For each workload: start the service in a group of its own, record it several times without a limit, each time after a run
that is not recorded, and plan from these recordings. Then rounds: record it once more, predict from the newest recordings
what each limit would do (written to disk before any run under it), run it under each limit. Compare the median of the
rounds' predictions with the median of their runs, and each run with the range that its round foretold. A machine that
others use, too, moves within minutes, so a prediction of the round before would be one of another machine. The last run
is one without a limit: what it differs by from the recordings is the machine or the service, not the prediction.

Both sides measure the same thing, the latency that the client sees:
  postgres  pgbench, sums over 3000 rows, one connection, closed loop; per transaction             trace: client:pgbench
  postgres-rate  the same with four clients, open loop (--rate); from when a transaction was due  trace: client:pgbench
  redis     redis-benchmark SORT of 600 numbers, one connection for each of 4 threads, closed loop
            trace: client:redis-benchmark
  nginx     wrk, a page that is compressed each time, one connection for each of 2 threads, one worker, closed loop
            trace: client:wrk
            (wrk adds the requests that it would have sent meanwhile to each long one: done to the prediction, too)
  compiler  make -j2 of generated C files; one compilation, from start to end         trace: process:ccwrap
Requests are long enough for the tools to tell 10% of them: redis-benchmark counts in steps of 8 us, wrk in steps of 10.
One worker and data that fit the caches, because what two runs do has to be the same to a few percent before a
prediction can be held to that: with two workers, both connections fell to one of them in every other run.
What a client spends outside of what the trace can see (its own system calls) is had from the recorded runs, as the
difference of the two medians (of several runs the median difference), and added to every prediction.

Idle CPUs poll while this runs (/dev/cpu_dma_latency held at 0), as in the latency profiles of tuned: a virtual CPU that
halts between two requests comes back to whatever its host has made of caches and clocks meanwhile, and the same request
then costs up to 20% more or less CPU time from one run to the next. --halt leaves idle CPUs as they are.

Loopback only. Groups are made below /plimsoll-verify and removed again. Exit: 0 all within tolerance, 1 not, 3 this
machine cannot do it.
"""
import argparse, datetime, glob, json, os, pathlib, re, shutil, signal, statistics, subprocess, sys, tempfile, time
from cpu_groups import TOP, Groups, die, finish, only_one, percentile, pipe, poll_when_idle, stop

TOLERANCE = {"throttled": 5.0, "cpus": 3.0, "p50": 10.0, "p99": 15.0}


groups = None


def start(group, command, **kwargs):
    return groups.start(group, command, **kwargs)


class Postgres:
    name, request, goal_factor = "postgres", "client:pgbench", 6
    shares, skip_s = (0.6, 1.1, 0.85), 1.0
    port = 17432
    load = ["-c", "1"]

    def start(self, work):
        self.dir = work / "postgres"
        self.dir.mkdir()
        shutil.chown(self.dir, "postgres", "postgres")
        os.chmod(work, 0o755)
        bins = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.pgbench = f"{bins}/pgbench" if os.path.exists(f"{bins}/pgbench") else "pgbench"
        run = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        subprocess.run(run + [f"{bins}/initdb", "-D", f"{self.dir}/data", "--auth=trust", "-N"], check=True, **quiet)
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}", "-c", "fsync=off",
                   "-c", f"unix_socket_directories={self.dir}", "-c", "autovacuum=off", "-c", "shared_buffers=256MB"]
        self.server = start("service", run + [f"{bins}/postgres", "-D", f"{self.dir}/data"] + options, **quiet)
        self.script = self.dir / "range.sql"
        self.script.write_text("\\set aid random(1, 10000)\n"
                               "SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 3000;\n")
        self.base = [self.pgbench, "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        for _ in range(100):
            if self.server.poll() is not None:
                break
            if subprocess.run(self.base + ["-i", "-s", "1", "-q", "postgres"], **quiet).returncode == 0:
                return
            time.sleep(0.2)
        raise RuntimeError("PostgreSQL did not start")

    def client(self, seconds, work, rate=None):
        self.log = pathlib.Path(tempfile.mkdtemp(dir=work))
        return start("client", self.base + ["-f", str(self.script), "-M", "prepared", "-n", *self.load, "-T", str(seconds), "-l",
                     "--log-prefix", str(self.log / "log"), "postgres"], **pipe())

    def result(self, out):
        # client, transaction, latency, script, second, microsecond. Making connections takes CPU time that the
        # recording does not see: the first second is left out.
        rows = [[int(field) for field in line.split()[:6]] for path in self.log.glob("log*") for line in open(path)]
        first = min(row[4] + row[5] / 1e6 for row in rows) + self.skip_s
        return [row[2] / 1e3 for row in rows if row[4] + row[5] / 1e6 >= first]

    def stop(self):
        stop(self.server)


class PostgresRate(Postgres):
    name, goal_factor = "postgres-rate", 4
    # Open loop: below 1 its queue would grow until the run ends.
    shares = (1.3, 1.6, 1.15)
    load = ["-c", "4", "-j", "4", "--rate", "1200"]


class Redis:
    name, request, goal_factor = "redis", "client:redis-benchmark", 6
    resolution_ms = 0.008
    shares, skip_s = (0.6, 1.1, 0.85), 0.3
    port = 17379

    def start(self, work):
        self.server = start("service", ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                            "--appendonly", "no", "--dir", str(work)], stdout=subprocess.DEVNULL)
        time.sleep(1)
        fill = "for i = 1, 600 do redis.call('rpush', 'list', i * 7919 % 10007) end"
        subprocess.run(["redis-cli", "-p", str(self.port), "eval", fill, "0"], check=True, stdout=subprocess.DEVNULL)
        self.rate = 12000

    def client(self, seconds, work, rate=None):
        # It ends after so many requests, not after a time; a recording must not be longer than it.
        count = int(rate * seconds if rate else 1.4 * self.rate * seconds)
        return start("client", ["redis-benchmark", "-h", "127.0.0.1", "-p", str(self.port), "-c", "4",
                     "--threads", "4", "-n", str(count), "--csv", "--precision", "3", "sort", "list", "limit", "0", "10"], **pipe())

    def result(self, out):
        # "test","rps","avg","min","p50","p95","p99","max"
        fields = [f.strip('"') for f in out.strip().splitlines()[-1].split(",")]
        self.rate = float(fields[1])
        return {"p50": float(fields[4]), "p99": float(fields[6])}

    def stop(self):
        stop(self.server)


class Nginx:
    name, request, goal_factor = "nginx", "client:wrk", 6
    resolution_ms = 0.01
    shares, skip_s = (0.6, 1.1, 0.85), 0.3
    port = 17480

    def start(self, work):
        (work / "www").mkdir()
        words = [str(n * n % 9973) for n in range(8000)]
        (work / "www/index.html").write_text(" ".join(words))
        os.chmod(work, 0o755)
        (work / "nginx.conf").write_text(
            f"worker_processes 1; daemon off; pid {work}/nginx.pid; error_log /dev/null; events {{}}\n"
            f"http {{ access_log off; gzip on; gzip_comp_level 5; server {{ listen 127.0.0.1:{self.port}; root {work}/www; }} "
            f"client_body_temp_path {work}/t1; proxy_temp_path {work}/t2; fastcgi_temp_path {work}/t3; "
            f"uwsgi_temp_path {work}/t4; scgi_temp_path {work}/t5; keepalive_requests 100000000; }}\n")
        self.server = start("service", ["nginx", "-c", str(work / "nginx.conf")], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)
        time.sleep(1)

    def client(self, seconds, work, rate=None):
        return start("client", ["wrk", "-t2", "-c2", f"-d{seconds}s", "--latency", "-H", "Accept-Encoding: gzip", f"http://127.0.0.1:{self.port}/"],
                     **pipe())

    def correct(self, distribution):
        """What wrk 4 makes of latencies: see stats_correct in its source. Two connections."""
        count = sum(n for _, n in distribution)
        # A connection sends one after the other: its mean latency is its mean interval.
        interval = max(1, sum(ns * n for ns, n in distribution) / max(1, count))
        found = [(ns, n) for ns, n in distribution]
        for ns, n in distribution:
            missed = ns - interval
            while ns > 2 * interval and missed > interval:
                found.append((missed, n))
                missed -= interval
        found.sort()
        total, seen, marks = sum(n for _, n in found), 0, []
        for ns, n in found:
            seen += n
            while len(marks) < 2 and seen >= total * (0.5, 0.99)[len(marks)]:
                marks.append(ns)
        return marks

    def result(self, out):
        unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}
        found = {}
        for percent, value, u in re.findall(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)$", out, re.M):
            found["p" + percent] = float(value) * unit[u]
        return found

    def stop(self):
        stop(self.server)


# Of the compilation: some 8 s on two CPUs.
FILES = 48


class Compiler:
    name, request, goal_factor = "compiler", "process:ccwrap", 2
    # A run is 48 compilations, a recording 30 to 40: p90 needs 29, p99 299 (docs/src/reference/plan.md), which are ten times as long.
    goal_percent = 90
    shares, skip_s = (0.6, 1.1, 0.85), 0.0

    def start(self, work):
        self.dir = work / "compiler"
        self.dir.mkdir()
        body = "\n".join(f"int f{i}(int *a, int n) {{ int s = {i}; for (int k = 0; k < n; k++) s += a[k] * (k ^ {i}) % 7; "
                         f"return s > {i} ? f{max(i - 1, 0)}(a, n / 2) : s; }}" for i in range(60))
        for i in range(FILES):
            (self.dir / f"u{i}.c").write_text(f"static int seed = {i};\n{body}\nint main{i}(int *a) {{ return f59(a, seed); }}\n")
        wrap = self.dir / "ccwrap"
        wrap.write_text("#!/bin/bash\nb=$EPOCHREALTIME\ngcc \"$@\"\nr=$?\necho \"$b $EPOCHREALTIME\" >> times\nexit $r\n")
        wrap.chmod(0o755)
        (self.dir / "Makefile").write_text(
            "objects := $(patsubst %.c,%.o,$(wildcard *.c))\nall: $(objects)\n%.o: %.c\n\t@./ccwrap -O2 -c $< -o $@\n")

    def client(self, seconds, work, rate=None):
        for path in list(self.dir.glob("*.o")) + [self.dir / "times"]:
            path.unlink(missing_ok=True)
        # The whole job is the service: it has no client.
        return start("service", ["make", "-j2", "-s", "-C", str(self.dir)], **pipe())

    def result(self, out):
        pairs = [line.split() for line in open(self.dir / "times")]
        return [(float(e) - float(b)) * 1e3 for b, e in pairs]

    def stop(self):
        pass


WORKLOADS = [Postgres, PostgresRate, Redis, Nginx, Compiler]
PACKAGES = ["postgresql", "postgresql-contrib", "redis-server", "redis-tools", "nginx-light", "wrk", "gcc", "make"]


def summary(found):
    if isinstance(found, dict):
        return found
    return {"p50": percentile(found, 50), "p90": percentile(found, 90), "p99": percentile(found, 99), "count": len(found)}


def measure(workload, seconds, work, rate=None):
    """One run: what the client saw, and what the group's own statistics say of it."""
    child = workload.client(seconds, work, rate)
    time.sleep(workload.skip_s)
    before, begin = groups.stat(), time.monotonic()
    out = finish(child, seconds * 20 + 60)
    elapsed, after = time.monotonic() - begin, groups.stat()
    if child.returncode != 0:
        raise RuntimeError(f"the client of {workload.name} failed ({child.returncode})")
    found = summary(workload.result(out))
    periods = after["nr_periods"] - before["nr_periods"]
    found["cpus"] = (after["usage_ns"] - before["usage_ns"]) / 1e9 / elapsed
    found["throttled"] = 100.0 * (after["nr_throttled"] - before["nr_throttled"]) / periods if periods else 0.0
    found["periods"] = periods
    found["elapsed_s"] = elapsed
    found["load1"] = os.getloadavg()[0]
    return found


def plimsoll(args, *command, codes=(0, 1)):
    done = subprocess.run([args.plimsoll, *command], capture_output=True, text=True)
    if done.returncode not in codes:
        raise RuntimeError(f"plimsoll {' '.join(command[:3])}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def record(args, workload, work, trace):
    seconds = args.record_seconds
    child = workload.client(seconds + 1 if workload.name != "compiler" else seconds, work)
    if workload.name != "compiler":
        time.sleep(0.7)
    recorder = subprocess.Popen([args.plimsoll, "record", "--duration", f"{seconds}s", "-o", str(trace), "--request",
                                 workload.request, "--json", "-"], stdout=subprocess.PIPE)
    client_out = finish(child, seconds * 20 + 60)
    report = json.loads(finish(recorder, seconds + 60))
    if child.returncode != 0:
        raise RuntimeError(f"the client of {workload.name} failed ({child.returncode}) while it was recorded")
    return {"overhead": report["overhead"], "lost": report["lost"], "tool": summary(workload.result(client_out))}


def of_target(workload):
    return ["--group", f"/{TOP}/service", "--request", workload.request, "--json", "-"]


def replay(args, traces, workload, setting):
    group = f"group.{TOP}/service"
    return plimsoll(args, "simulate", *[f"--replay={trace}" for trace in traces], *of_target(workload),
                    *[f"--set={group}.{key}={value}" for key, value in setting.items()])


def corrected(found, workload):
    """The ranges of p50 and p99 as the tool would show them, put together as plimsoll does: each case has its own, with
    what the replay of its recording is known to be off by; they are spanned, with the recordings' median middle."""
    ranges = {}
    for at, (key, name) in enumerate((("p50_ns", "p50 latency"), ("p99_ns", "p99 latency"))):
        lows, middles, highs = [], [], []
        for case in found["ranges"]["cases"]:
            values = sorted(workload.correct(d)[at] for d in case["latencies"])
            checks = found["recordings"][case["recording"]]["self_check"]
            error = next((c["recorded"] / c["replayed"] for c in checks if c["name"] == name and c["replayed"]), 1.0)
            lows.append(percentile(values, 5) * min(1.0, error))
            highs.append(percentile(values, 95) * max(1.0, error))
            if case["work_scale"] == 1.0:
                middles.append(statistics.median(values))
        ranges[key] = {"low": min(lows), "middle": statistics.median(middles), "high": max(highs)}
    return ranges


def believed(args, workload, work, trace):
    """A recording that plimsoll does not refuse, and its replay; one that cannot be trusted is made again."""
    for attempts_left in (2, 1, 0):
        report = record(args, workload, work, trace)
        try:
            return report, replay(args, [trace], workload, {})["recordings"][0]
        except RuntimeError as e:
            if not attempts_left:
                raise
            print(f"  recorded again: {e}", flush=True)


def predict(args, traces, setting, offset, workload):
    found = replay(args, traces, workload, setting)
    ranges = found["ranges"]
    if hasattr(workload, "correct"):
        ranges |= corrected(found, workload)
    ms = lambda r: {k: v / 1e6 + offset for k, v in r.items()}
    return {"setting": setting, "p50": ms(ranges["p50_ns"]), "p99": ms(ranges["p99_ns"]),
            "throttled": {k: v * 100 for k, v in ranges["throttled"].items()}, "cpus": ranges["cpus"],
            "requests_per_s": ranges["requests_per_s"]["middle"]}


def choose(cpus, shares):
    """Three limits about what the service uses, as shares of it, with and without burst."""
    quota = lambda share, period: max(1000, int(round(share * cpus * period / 100) * 100))
    a, b, c = (quota(share, period) for share, period in zip(shares, (100000, 20000, 50000)))
    return [{"quota_us": a, "period_us": 100000}, {"quota_us": b, "period_us": 20000, "burst_us": b // 2},
            {"quota_us": c, "period_us": 50000, "burst_us": c}]


def applied(setting):
    return setting.get("quota_us"), setting.get("period_us", 100000), setting.get("burst_us", 0)


def verify(args, kind, out):
    workload = kind()
    print(f"\n{workload.name}", flush=True)
    with tempfile.TemporaryDirectory(prefix="plimsoll-verify-") as directory:
        work = pathlib.Path(directory)
        groups.limit(None)
        workload.start(work)
        try:
            return verified(args, workload, work, out)
        finally:
            groups.limit(None)
            workload.stop()


class Recordings:
    """The recordings of one workload, oldest first; what is predicted at any time comes from the newest of them."""

    def __init__(self, args, workload, work, out):
        self.args, self.workload, self.work, self.out = args, workload, work, out
        self.traces, self.reports = [], []

    def add(self):
        trace = self.out / f"{self.workload.name}-{len(self.traces) + 1}.trace"
        report, found = believed(self.args, self.workload, self.work, trace)
        report |= {"trace": found["recorded"], "self_check": found["self_check"]}
        report["offset_ms"] = report["tool"]["p50"] - found["recorded"]["p50_ns"] / 1e6
        self.traces.append(trace)
        self.reports.append(report)
        print(f"  {now()[11:19]} recorded: client p50 {report['tool']['p50']:.3f} p99 {report['tool']['p99']:.3f} ms, trace p50 "
              f"{found['recorded']['p50_ns'] / 1e6:.3f} p99 {found['recorded']['p99_ns'] / 1e6:.3f} ms, "
              f"{found['recorded']['cpus']:.3f} CPUs, lost {report['lost']}", flush=True)

    def middle(self, of):
        return statistics.median(of(report) for report in self.reports[-self.args.recordings:])

    def rate(self):
        """Requests in a second without a limit."""
        return self.middle(lambda r: r["trace"]["requests"]) / self.args.record_seconds

    def predict(self, runs):
        newest, offset = self.traces[-self.args.recordings:], self.middle(lambda r: r["offset_ms"])
        return [predict(self.args, newest, run["setting"], offset, self.workload) | {"why": run["why"]} for run in runs]


def goal_percent(workload):
    """The percentile that the goal is for: one that a single run has enough requests to show."""
    return getattr(workload, "goal_percent", 99)


def verified(args, workload, work, out):
    free = [measure(workload, max(4, args.seconds // 2), work)]  # warms up; a closed loop's rate is known from here
    recordings = Recordings(args, workload, work, out)
    for i in range(args.recordings):
        if i:
            free.append(measure(workload, args.seconds, work, recordings.rate()))
        recordings.add()
    percent = goal_percent(workload)
    goal_ms = workload.goal_factor * recordings.middle(lambda r: r["tool"][f"p{percent}"])
    offset = recordings.middle(lambda r: r["offset_ms"])
    planned = plimsoll(args, "plan", *map(str, recordings.traces), *of_target(workload),
                       "--goal", f"p{percent}(request) < {goal_ms - offset:.6f}ms")["plan"]
    cpus = recordings.middle(lambda r: r["trace"]["cpus"])
    runs = [{"why": f"setting {i + 1}", "setting": s, "measured": []} for i, s in enumerate(choose(cpus, workload.shares))]
    for why in ("recommended", "next_cheaper"):
        found = planned[why]
        if found:
            limits = {k: found[k] for k in ("quota_us", "period_us", "burst_us")}
            limits["quota_us"] = limits["quota_us"] or "max"
            runs.append({"why": why, "setting": limits, "measured": []})
    variation = planned["variation"]
    print(f"  CPU per request, ms: {', '.join(f'{ns / 1e6:.4f}' for ns in variation['cost_ns'])}; another run: "
          f"{variation['low']:.3f} to {variation['high']:.3f} of the median; goal p{percent} < {goal_ms:.3f} ms: "
          f"{planned['verdict']}", flush=True)
    foretold = {"workload": workload.name, "request": workload.request, "goal_ms": goal_ms, "goal_percent": percent, "variation": variation,
                "verdict": planned["verdict"], "rounds": [], "recordings": recordings.reports}
    for _ in range(args.repetitions):
        recordings.add()
        predictions = recordings.predict(runs)
        foretold["rounds"].append({"written": now(), "predictions": predictions})
        (out / f"{workload.name}.prediction.json").write_text(json.dumps(foretold, indent=1))
        os.sync()
        for prediction, run in zip(predictions, runs):
            setting = run["setting"]
            quota = setting["quota_us"] if setting["quota_us"] != "max" else None
            groups.limit(quota, setting.get("period_us", 100000), setting.get("burst_us", 0))
            run["measured"].append(measure(workload, args.seconds, work, prediction["requests_per_s"]))
            groups.limit(None)
    free.append(measure(workload, args.seconds, work, recordings.rate()))
    for at, run in enumerate(runs):
        compare_one([r["predictions"][at] for r in foretold["rounds"]], run)
    measured = {"finished": now(), "unlimited": free, "runs": runs}
    (out / f"{workload.name}.measured.json").write_text(json.dumps(measured, indent=1))
    for trace in recordings.traces if not args.keep_traces else []:
        trace.unlink()
    return foretold, measured


def spread(runs, key):
    values = [r[key] for r in runs]
    return min(values), statistics.median(values), max(values)


def compare_one(predictions, run):
    setting = run["setting"]
    name = f"{setting['quota_us']}/{setting.get('period_us', 100000)}" + (f"+{setting['burst_us']}" if setting.get("burst_us") else "")
    three = lambda values: " ".join(f"{value:.3f}" for value in values)
    cells = [f"{key} {three(p[key]['middle'] for p in predictions)} | {three(r[key] for r in run['measured'])}"
             for key in ("p50", "p99", "cpus", "throttled")]
    print(f"  {run['why']:13} {name:22} " + "  ".join(cells), flush=True)


def judge(results):
    """The tolerances of docs/src/lab/plan.md: medians over settings of the differences; ranges; goals."""
    rows, missed = [], False
    for foretold, measured in results:
        runs = measured["runs"]
        resolution = next((getattr(w, "resolution_ms", 0.0) for w in WORKLOADS if w.name == foretold["workload"]), 0.0)
        diffs = {"throttled": [], "cpus": [], "p50": [], "p99": []}
        inside = total = 0
        p99_near = []
        for at, own in enumerate(runs):
            predictions = [r["predictions"][at] for r in foretold["rounds"]]
            for key in diffs:
                low, middle, high = spread(own["measured"], key)
                predicted = statistics.median(p[key]["middle"] for p in predictions)
                diffs[key].append(abs(predicted - middle) if key == "throttled" else 100 * abs(predicted - middle) / middle)
                if key == "p99":
                    p99_near.append(low <= predicted <= high or diffs[key][-1] <= TOLERANCE["p99"])
            for prediction, run in zip(predictions, own["measured"]):
                total += 1
                # A tool that counts in steps says no more than that.
                low, high = (prediction["p99"][end] for end in ("low", "high"))
                inside += low - resolution <= run["p99"] <= high + resolution
        row = {"workload": foretold["workload"]}
        for key, values in diffs.items():
            row[key] = statistics.median(values)
            row[key + "_max"] = max(values)
        row["p99_ok"] = sum(p99_near) * 2 >= len(p99_near)
        row["inside"] = f"{inside}/{total}"
        for why in ("recommended", "next_cheaper"):
            found = [r for r in runs if r["why"] == why]
            row[why] = [r[f"p{foretold['goal_percent']}"] for r in found[0]["measured"]] if found else []
        row["goal_ms"] = foretold["goal_ms"]
        row["recorded"] = {key: spread([r["tool"] | {"cpus": r["trace"]["cpus"]} for r in foretold["recordings"]], key)
                           for key in ("cpus", "p50", "p99")}
        row["variation"] = foretold["variation"]
        row["unlimited"] = {key: spread(measured["unlimited"], key) for key in ("cpus", "p50", "p99")}
        rows.append(row)
    return rows


def report(rows, out, args, idle):
    lines = [f"# make verify-plan, {now()}", "",
             f"{os.uname().release}, {os.cpu_count()} CPUs, cgroup v{2 if groups.v2 else 1}; {args.plimsoll}; {args.recordings} "
             f"recordings of {args.record_seconds} s, then {args.repetitions} rounds of another and a run of {args.seconds} s "
             f"for each setting (the compiler: as long as {FILES} files take); {idle}; load average at the end "
             f"{os.getloadavg()[0]:.1f}", "",
             "Differences predicted - measured, median (largest) over the settings; allowed: throttled 5 points, CPU 3%, "
             "p50 10%, p99 15% or inside the runs' own spread.", "",
             "| workload | throttled, points | CPU use, % | p50, % | p99, % | p99 of real runs inside the predicted range | "
             "recommended meets its goal | next cheaper misses it |", "|---|---|---|---|---|---|---|---|"]
    failed = 0
    for row in rows:
        def cell(key, ok):
            return f"{row[key]:.1f} ({row[key + '_max']:.1f}){'' if ok else ' **missed**'}"
        oks = {key: row[key] <= TOLERANCE[key] for key in ("throttled", "cpus", "p50")}
        oks["p99"] = row["p99_ok"]
        goal = row["goal_ms"]
        met = sum(v < goal for v in row["recommended"])
        misses = sum(v >= goal for v in row["next_cheaper"])
        oks["goal"] = met == len(row["recommended"])
        failed += sum(not ok for ok in oks.values())
        lines.append(f"| {row['workload']} | {cell('throttled', oks['throttled'])} | {cell('cpus', oks['cpus'])} | "
                     f"{cell('p50', oks['p50'])} | {cell('p99', oks['p99'])} | {row['inside']} | "
                     f"{met}/{len(row['recommended'])}{'' if oks['goal'] else ' **missed**'} | "
                     f"{misses}/{len(row['next_cheaper'])} |")
    lines += ["", "The machine meanwhile: the recordings, and the runs without a limit (before each of the first recordings, "
              "and at the end), smallest, median, largest. CPU per request: by how much the recordings differ, and what "
              "another run is expected to take.", "",
              "| workload | CPUs recorded | unlimited | p50 recorded, ms | unlimited | p99 recorded, ms | unlimited | CPU per request |",
              "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = [", ".join(f"{v:.3f}" for v in row[when][key]) for key in ("cpus", "p50", "p99")
                 for when in ("recorded", "unlimited")]
        costs = row["variation"]["cost_ns"]
        cells.append(f"{100 * (max(costs) / min(costs) - 1):.1f}%, {100 * (row['variation']['low'] - 1):+.1f}% to "
                     f"{100 * (row['variation']['high'] - 1):+.1f}%")
        lines.append(f"| {row['workload']} | " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    (out / "summary.md").write_text(text)
    print("\n" + text)
    return failed


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def main():
    global groups
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="target/release/plimsoll")
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("--record-seconds", type=int, default=15, help="of each recording")
    parser.add_argument("--recordings", type=int, default=3, help="before the first round; as many of the newest make a prediction")
    parser.add_argument("--repetitions", type=int, default=3, help="rounds: a recording and a run for each setting")
    parser.add_argument("--only", help="names of workloads, with commas between")
    parser.add_argument("--out", help="where raw results go [bench/results/DATE-verify-plan]")
    parser.add_argument("--keep-traces", action="store_true")
    parser.add_argument("--halt", action="store_true", help="let idle CPUs halt, as they do without this program")
    parser.add_argument("--packages", action="store_true", help="print the Debian packages that are needed")
    args = parser.parse_args()
    if args.packages:
        print("\n".join(PACKAGES))
        return 0
    if os.geteuid() != 0:
        die(3, "groups and BPF need root")
    # Groups and ports are the same for all.
    lock = only_one()
    # Services and groups are put away also when this is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    out = pathlib.Path(args.out or f"bench/results/{date}-verify-plan")
    out.mkdir(parents=True, exist_ok=True)
    groups = Groups()
    groups.make()
    idle = "idle CPUs halt (--halt)" if args.halt else poll_when_idle()
    print(idle, flush=True)
    wanted = args.only.split(",") if args.only else [w.name for w in WORKLOADS]
    results, broken = [], []
    try:
        for kind in WORKLOADS:
            if kind.name in wanted:
                try:
                    results.append(verify(args, kind, out))
                except (RuntimeError, OSError, subprocess.SubprocessError) as e:
                    broken.append(kind.name)
                    print(f"  {kind.name}: not measured: {e}", flush=True)
    finally:
        groups.stop()
    rows = judge(results)
    failed = report(rows, out, args, idle)
    return 1 if failed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
