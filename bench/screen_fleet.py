#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How long does `plimsoll screen` take over a large fleet in a real Prometheus, how much memory, and is it right?

Containers are made of six kinds, one of each class, in namespaces of 100; use swings by a tenth with a phase of its own for
each, so that samples compress no better than real ones. bench/fleet-blocks (Go) writes them as blocks of a day with
Prometheus' own library: 470 million samples in two minutes, where promtool takes hours. Then Debian's Prometheus
(`make prometheus`) serves them, without compacting them meanwhile, and `screen` is timed from the beginning of the process to
its end, with the largest memory it had, and the server's CPU time.

`wrong`: containers whose class is not the one they were made for. Nothing is drawn at random: the same arguments make the
same samples.

`--krr "PYTHON KRR.PY"` times Robusta's KRR, from a folder that has it, on the same server after `screen`. KRR asks a cluster what runs:
a made-up API server (cluster_api.py) answers these questions. It knows no other time than now, so the samples end now, and
depend on when they are made.
Exit: 0 all classes right, 1 not, 3 this machine cannot do it.
"""
import argparse, collections, json, os, pathlib, shlex, shutil, socket, subprocess, sys, tempfile, time, urllib.request
import cluster_api

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target/prometheus/usr/bin"
DAY_S = 86_400
BEGIN_S = 1_699_999_200
PERIODS_PER_S = 10
SETTINGS_S = 240  # limits and owners: often enough that Prometheus, which looks back five minutes, always finds them
IN_NAMESPACE = 100
# limit, share of it in use, share of periods that are throttled, request, class; crates/screen/tests/common has the same.
KINDS = [
    (1.0, 0.2, 0.02, None, "throttled_by_bursts"),
    (1.0, 0.99, 0.95, None, "too_small"),
    (4.0, 0.1, 0.0, 4.0, "too_large"),
    (1.0, 0.7, 0.0, 1.0, "fine"),
    (None, 0.7, 0.0, 1.0, "no_limit_fine"),
    (None, 2.8, 0.0, 0.5, "no_limit_needs_one"),
]


def die(text):
    print(f"screen_fleet.py: {text}", file=sys.stderr)
    sys.exit(3)


def make_blocks(folder, args, begin_s):
    if not shutil.which("go"):
        die("go is missing; allowed: 1.20 or newer")
    program = folder / "fleet-blocks"
    subprocess.run(["go", "build", "-o", program, "."], cwd=ROOT / "bench/fleet-blocks", check=True)
    fields = ("limit", "share", "throttled", "request")
    fleet = {"begin_s": begin_s, "periods_per_s": PERIODS_PER_S, "settings_s": SETTINGS_S, "in_namespace": IN_NAMESPACE,
             "kinds": [dict(zip(fields, kind)) for kind in KINDS]}
    began = time.monotonic()
    run = subprocess.run(["nice", "-n", "15", program, "-data", folder / "data", "-days", str(args.days), "-containers",
                          str(args.containers), "-interval", str(args.interval)], input=json.dumps(fleet), text=True)
    if run.returncode:
        shutil.rmtree(folder / "data", ignore_errors=True)
        die(f"fleet-blocks failed with code {run.returncode}")
    print(f"blocks: {time.monotonic() - began:.0f} s", file=sys.stderr)


def serve(folder):
    (folder / "prometheus.yml").write_text("")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([
        TOOLS / "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y", "--storage.tsdb.min-block-duration=2h",
        "--storage.tsdb.max-block-duration=2h", "--log.level=error", f"--web.listen-address=127.0.0.1:{port}"])
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=5).close()
            return server, url
        except OSError:
            time.sleep(0.2)
    server.kill()
    die("Prometheus was not ready within two minutes")


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def screen(args, folder, server, url, begin_s):
    """Time, CPU time of screen and of the server, memory of `screen` alone, and its answer."""
    out = folder / "screen.json"
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin_s + args.days * DAY_S))
    more = ["--every-sample"] if args.every_sample else []
    began, server_s = time.monotonic(), cpu_s(server.pid)
    process = subprocess.Popen([args.plimsoll, "screen", "--prometheus", url, "--last", f"{args.days}d",
                                "--until", end, "--json", out, *more], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took_s, server_s = time.monotonic() - began, cpu_s(server.pid) - server_s
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        die(f"screen ended with code {os.waitstatus_to_exitcode(status)}")
    found = json.loads(out.read_text())["screening"]
    return took_s, usage.ru_utime + usage.ru_stime, server_s, usage.ru_maxrss / 1024, found


def krr(args, folder, server, url):
    """Prints how long KRR takes, its CPU time, the server's, and for how many containers it has a request."""
    cluster = cluster_api.Cluster([(f"team-{i // IN_NAMESPACE}", f"app-{i}") for i in range(args.containers)])
    config, out = folder / "kubeconfig", folder / "krr.json"
    config.write_text(cluster.kubeconfig())
    began, server_s = time.monotonic(), cpu_s(server.pid)
    process = subprocess.Popen(
        [*shlex.split(args.krr), "simple", "--kubeconfig", config, "--prometheus-url", url, "--resource", "StatefulSet",
         "--history-duration", str(24 * args.days), "--formatter", "json", "--fileoutput", out, "--quiet"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took_s, server_s = time.monotonic() - began, cpu_s(server.pid) - server_s
    cluster.stop()
    if os.waitstatus_to_exitcode(status):
        die(f"KRR ended with code {os.waitstatus_to_exitcode(status)}")
    scans = json.loads(out.read_text())["scans"]
    known = [scan for scan in scans if isinstance(scan["recommended"]["requests"]["cpu"]["value"], float)]
    print(f"KRR: {len(scans)} containers, {len(known)} with a request for CPU: {took_s:.1f} s; CPU {usage.ru_utime + usage.ru_stime:.1f} s "
          f"in KRR, {server_s:.1f} s in Prometheus; {usage.ru_maxrss / 1024:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--containers", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=7, help="a block each")
    parser.add_argument("--interval", type=int, default=30, help="seconds between samples")
    parser.add_argument("--every-sample", action="store_true", help="no first look at some of the samples")
    parser.add_argument("--times", type=int, default=1, help="how often to screen")
    parser.add_argument("--krr", metavar="COMMAND", help="as in \"venv/bin/python krr/krr.py\": time KRR, too")
    parser.add_argument("--plimsoll", default=ROOT / "target/release/plimsoll", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, help="keep the blocks there, or use those that are there")
    args = parser.parse_args()
    if args.containers < 1 or args.days < 1 or args.times < 1 or not 1 <= args.interval <= 240:
        parser.error("allowed: one container, day and time or more, 1 to 240 s between samples")
    for program in (TOOLS / "prometheus", args.plimsoll):
        if not program.exists():
            die(f"{program} is missing; `make prometheus` and `cargo build --release -p plimsoll` make it")
    folder = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="screen-fleet-"))
    server = None
    try:
        if not (folder / "data").exists():
            folder.mkdir(parents=True, exist_ok=True)
            begin_s = BEGIN_S
            if args.krr:
                begin_s = int(time.time()) // SETTINGS_S * SETTINGS_S - args.days * DAY_S
            make_blocks(folder, args, begin_s)
            (folder / "begin_s").write_text(str(begin_s))
        begun = folder / "begin_s"
        begin_s = int(begun.read_text()) if begun.exists() else BEGIN_S
        server, url = serve(folder)
        wrong = any([report(args, *screen(args, folder, server, url, begin_s)) for _ in range(args.times)])
        if args.krr:
            krr(args, folder, server, url)
    finally:
        if server:
            server.terminate()
            server.wait()
        if not args.folder:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if wrong else 0)


def report(args, took_s, own_s, server_s, memory_mib, found):
    """Prints what was found; whether any of it is wrong."""
    wrong = collections.Counter()
    for row in found["rows"]:
        kind = KINDS[int(row["pod"].removeprefix("pod-")) % len(KINDS)]
        if row["class"] != kind[-1]:
            wrong[f"{kind[-1]} called {row['class']}"] += 1
    missing = args.containers - len(found["rows"])
    some = sum(row["one_in"] > 1 for row in found["rows"])
    print(f"{len(found['rows'])} containers, {args.days} days, {found['samples'] / 1e6:.1f} million samples: "
          f"{took_s:.1f} s; CPU {own_s:.1f} s in screen, {server_s:.1f} s in Prometheus; {memory_mib:.0f} MiB; "
          f"some samples of {some}, every one of {len(found['rows']) - some}; wrong {sum(wrong.values())}, missing {missing}")
    for what, count in wrong.items():
        print(f"  {count} {what}")
    for warning in found["warnings"]:
        print(f"  warning: {warning}")
    return bool(wrong or missing)


main()
