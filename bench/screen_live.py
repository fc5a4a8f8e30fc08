#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Are really throttled containers in the class that `plan` gives?

Groups of this machine's cpu controller (v1 or v2, root) with limits, and loads of different kinds in them: bursts, at once and
alone, requests at random times, too small, fine, too large. Their cpu.stat is served under cAdvisor's names, a real
Prometheus (`make prometheus`) scrapes it for some minutes, and `plimsoll screen` asks that. One recording of `plimsoll record` covers
the same minutes. Each group is planned from it with the goal that `screen` has: throttled in less than 1% of the periods, or half as often:

  fine, too large       today's limit meets the goal, and no more CPUs are recommended; too large: what is recommended is below
                        three quarters of it, and by 0.1 CPUs or more
  bursts                today's does not meet it, and in the plan's replays a burst of one quota halves what today's is throttled
  too small             it does not halve it; or another run may want more CPU time than the limit gives, as the plan has it, which no burst
                        makes up for; or today's meets the goal as recorded, and more CPUs are recommended

What is recommended is printed beside it: it may be more CPUs with a burst, as a plan holds its goal at the high end of its ranges.

Exit: 0 all agree, 1 not, 3 this machine cannot do it.
"""
import argparse, http.server, json, multiprocessing, pathlib, random, shutil, socket, subprocess, sys, tempfile, threading, time
import cpu_groups

cpu_groups.TOP = "plimsoll-screen"
ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMETHEUS = ROOT / "target/prometheus/usr/bin/prometheus"
SCRAPE_S = 5
WORTH_CPUS = 0.1  # `screen` calls nothing too large that gives less back
# name: limit in CPUs, processes, ms of work of each, ms between two pieces, whether at random times, and what it is.
LOADS = {
    "together": (0.5, 2, 40, 500, False, "two processes, 40 ms each at once, every 500 ms"),
    "alone": (0.5, 1, 80, 1000, False, "one process, 80 ms every second"),
    "random": (0.5, 1, 30, 200, True, "one process, 30 ms at random times, 5 a second"),
    "flood": (0.2, 2, 1000, 0, False, "two processes that never stop"),
    "tight": (0.2, 1, 19, 100, False, "one process, 19 ms every 100 ms"),
    "steady": (0.1, 1, 3, 50, False, "one process, 3 ms every 50 ms"),
    "roomy": (1.0, 1, 3, 50, False, "the same under a limit ten times as high"),
}
CLASSES = {"throttled_by_bursts": "bursts", "too_small": "too small", "too_large": "too large", "fine": "fine"}


def load(name):
    _, processes, work_ms, every_ms, at_random, _ = LOADS[name]

    def one(number):
        times = random.Random(number)
        due = time.clock_gettime(time.CLOCK_MONOTONIC) // 1 + 1
        while True:
            time.sleep(max(0.0, due - time.monotonic()))
            end = time.thread_time() + work_ms / 1e3
            while time.thread_time() < end:
                pass
            due += times.expovariate(1e3 / every_ms) if at_random else every_ms / 1e3

    for number in range(1, processes):
        multiprocessing.Process(target=one, args=(number,), daemon=True).start()
    one(0)


def metrics(groups):
    lines = []
    for name in LOADS:
        stat = dict(line.split() for line in open(groups.path(name, "cpu.stat")))
        values = {"usage_seconds_total": groups.usage_ns(name) / 1e9, "cfs_periods_total": stat["nr_periods"],
                  "cfs_throttled_periods_total": stat["nr_throttled"]}
        labels = f'{{namespace="live",pod="{name}",container="app"}}'
        lines += [f"container_cpu_{what}{labels} {value}" for what, value in values.items()]
        lines += [f"container_spec_cpu_quota{labels} {LOADS[name][0] * 1e5:.0f}", f"container_spec_cpu_period{labels} 100000"]
    return "\n".join(lines) + "\n"


def exporter(groups):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = metrics(groups).encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def prometheus(folder, target):
    (folder / "prometheus.yml").write_text(
        f"global: {{ scrape_interval: {SCRAPE_S}s }}\n"
        f"scrape_configs: [ {{ job_name: live, static_configs: [ {{ targets: ['127.0.0.1:{target}'] }} ] }} ]\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                               "--log.level=error", f"--web.listen-address=127.0.0.1:{port}"])
    return server, f"http://127.0.0.1:{port}"


def limited(groups, name):
    quota_us = int(LOADS[name][0] * 1e5)
    if groups.v2:
        groups.write(name, "cpu.max", f"{quota_us} 100000")
    else:
        groups.write(name, "cpu.cfs_period_us", 100000)
        groups.write(name, "cpu.cfs_quota_us", quota_us)


def asked(args, *words):
    run = subprocess.run([args.plimsoll, *map(str, words)], capture_output=True, text=True)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{words[0]}: exit {run.returncode}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def recommended(found):
    """In CPUs, None: no limit; and in words."""
    new = found["plan"]["recommended"]
    if new["quota_us"] is None:
        return None, "no limit"
    cpus = new["quota_us"] / new["period_us"]
    return cpus, f"{cpus:.3f} CPUs in {new['period_us'] / 1e3:g} ms, burst {new['burst_us'] / 1e3:g} ms"


def planned(found, limit, now, burst):
    """The class that a plan gives. now, burst: the share of throttled periods in its replays, today and with a burst of one quota."""
    cpus, _ = recommended(found)
    if found["plan"]["today"]["meets"] and cpus is not None and cpus <= 1.001 * limit:
        return "too large" if cpus < 0.75 * limit and limit - cpus >= WORTH_CPUS else "fine"
    helps = not found["plan"]["today"]["meets"] and burst <= now / 2 and found["request_cpus"] <= limit
    return "bursts" if helps else "too small"


def throttled(args, trace, name, burst_us):
    """Of the periods, with such a burst: the middle of what replays give."""
    found = asked(args, "simulate", "--replay", trace, "--group", f"/{cpu_groups.TOP}/{name}", "--set",
                  f"group.{cpu_groups.TOP}/{name}.burst_us={burst_us}", "--json")
    return found["ranges"]["throttled"]["middle"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6, help="scraped for so long; screen needs 30 samples")
    parser.add_argument("--record-seconds", type=int, default=20)
    parser.add_argument("--plimsoll", default=ROOT / "target/release/plimsoll", type=pathlib.Path)
    args = parser.parse_args()
    for program in (PROMETHEUS, args.plimsoll):
        if not program.exists():
            cpu_groups.die(3, f"{program} is missing; `make prometheus` and `cargo build --release -p plimsoll` make it")
    groups = cpu_groups.Groups(tuple(LOADS))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="screen-live-"))
    server = None
    try:
        groups.make()
        for name in LOADS:
            limited(groups, name)
            groups.start(name, [sys.executable, __file__, "--load", name])
        server, url = prometheus(folder, exporter(groups))
        # All of them over all of the time: what `plan` is asked about is what was scraped.
        trace = folder / "live.trace"
        asked(args, "record", "--cgroup", f"/{cpu_groups.TOP}", "--duration", f"{60 * args.minutes:.0f}s", "-o", trace, "--json")
        # The shortest time that can be asked for: before the beginning there is nothing.
        screening = asked(args, "screen", "--prometheus", url, "--last", "15m", "--json")["screening"]
        server.terminate()
        server.wait()
        groups.stop()
        rows = {row["pod"]: row for row in screening["rows"]}
        wrong = 0
        print("| load | limit | used | throttled | `screen` | `plan` | replays hold | recommended |\n|---|---|---|---|---|---|---|---|")
        for name, (limit, *_, words) in LOADS.items():
            row = rows[name]
            goal = f"throttled < {max(1.0, 50 * row['throttled_share']):.2f}%"
            try:
                found = asked(args, "plan", trace, "--group", f"/{cpu_groups.TOP}/{name}", "--goal", goal, "--json")
                now, burst = (throttled(args, trace, name, burst_us) for burst_us in (0, int(limit * 1e5)))
                klass, (_, what) = planned(found, limit, now, burst), recommended(found)
                what += f"; replayed throttled {now:.1%}, {burst:.1%} with a burst of one quota"
                holds = "yes" if found["self_check_holds"] else "no"
            except (RuntimeError, ValueError) as error:
                klass, what, holds = "none", str(error), "-"
            own = CLASSES.get(row["class"], row["class"])
            wrong += own != klass
            print(f"| {words} | {limit:g} | {row['used']:.3f} | {row['throttled_share']:.1%} | {own} | "
                  f"{klass}{'' if own == klass else ' **differs**'} | {holds} | {what} |", flush=True)
        print(f"{len(LOADS) - wrong} of {len(LOADS)} agree; warnings: {screening['warnings']}")
    finally:
        groups.stop()
        if server:
            server.terminate()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if wrong else 0)


if sys.argv[1:2] == ["--load"]:
    load(sys.argv[2])
else:
    main()
