#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How long does `plimsoll screen` take over a large fleet in a real Prometheus, how much memory, and is it right?

Containers are made of six kinds, one of each class, in namespaces of 100; use swings by a tenth with a phase of its own for
each, so that samples compress no better than real ones. promtool makes blocks of them, two hours at a time: it reads its
whole input once for every block, and holds one block in memory. Then Debian's Prometheus (`make prometheus`) serves them,
and `screen` is timed from the beginning of the process to its end, with the largest memory it had.

`wrong`: containers whose class is not the one they were made for. Nothing is drawn at random: the same arguments make the
same samples.
Exit: 0 all classes right, 1 not, 3 this machine cannot do it.
"""
import argparse, collections, json, math, os, pathlib, shutil, socket, subprocess, sys, tempfile, time, urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target/prometheus/usr/bin"
BLOCK_S = 7200
BEGIN_S = 1_699_999_200  # a block begins there: promtool cuts at multiples of two hours
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


def name(i):
    return f'namespace="team-{i // IN_NAMESPACE}",pod="pod-{i}"'


def use_s(i, at_s):
    """CPU time that container i has used `at_s` after it began: the integral of a use that swings by a tenth."""
    limit, share, _, _, _ = KINDS[i % len(KINDS)]
    rate = share * (limit or 1.0)
    turn = 2 * math.pi / (1500 + i % 977)
    swing = 0.1 * rate / turn * (math.cos(i) - math.cos(turn * at_s + i))
    return rate * at_s + (swing if share < 0.9 else 0.0)


def write_block(path, containers, first_s, interval_s):
    """Every sample of two hours, as OpenMetrics text: series after series."""
    with open(path, "w", buffering=1 << 20) as out:
        times = range(first_s, first_s + BLOCK_S, interval_s)
        for i in range(containers):
            limit, _, throttled, request, _ = KINDS[i % len(KINDS)]
            labels = f'{{{name(i)},container="app"}}'
            series = f"container_cpu_usage_seconds_total{labels}"
            out.write("".join(f"{series} {use_s(i, t - BEGIN_S):.6f} {t}\n" for t in times))
            if limit is not None:
                series = f"container_cpu_cfs_periods_total{labels}"
                out.write("".join(f"{series} {(t - BEGIN_S) * PERIODS_PER_S} {t}\n" for t in times))
                series = f"container_cpu_cfs_throttled_periods_total{labels}"
                out.write("".join(f"{series} {round((t - BEGIN_S) * PERIODS_PER_S * throttled)} {t}\n" for t in times))
            settings = [("limits", limit), ("requests", request)]
            lines = [f'kube_pod_container_resource_{what}{{{name(i)},container="app",resource="cpu",unit="core"}} {value}'
                     for what, value in settings if value is not None]
            lines.append(f'kube_pod_owner{{{name(i)},owner_kind="StatefulSet",owner_name="app-{i}"}} 1')
            for line in lines:
                out.write("".join(f"{line} {t}\n" for t in range(first_s, first_s + BLOCK_S, SETTINGS_S)))
        out.write("# EOF\n")


def make_blocks(folder, args):
    for block in range(args.blocks):
        text = folder / "block.om"
        began = time.monotonic()
        write_block(text, args.containers, BEGIN_S + block * BLOCK_S, args.interval)
        run = subprocess.run([TOOLS / "promtool", "tsdb", "create-blocks-from", "openmetrics", text, folder / "data"],
                             stdout=subprocess.DEVNULL)
        if run.returncode:
            die(f"promtool failed with code {run.returncode}")
        text.unlink()
        print(f"block {block + 1} of {args.blocks}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def serve(folder):
    (folder / "prometheus.yml").write_text("")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([
        TOOLS / "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y", "--log.level=error", f"--web.listen-address=127.0.0.1:{port}"])
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=5).close()
            return server, url
        except OSError:
            time.sleep(0.2)
    server.kill()
    die("Prometheus was not ready within two minutes")


def screen(args, folder, url):
    """Time, memory of `screen` alone, and its answer."""
    out = folder / "screen.json"
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN_S + args.blocks * BLOCK_S))
    began = time.monotonic()
    process = subprocess.Popen([args.plimsoll, "screen", "--prometheus", url, "--last", f"{args.blocks * 2}h",
                                "--until", end, "--json", out], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took_s = time.monotonic() - began
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        die(f"screen ended with code {os.waitstatus_to_exitcode(status)}")
    return took_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(out.read_text())["screening"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--containers", type=int, default=10_000)
    parser.add_argument("--blocks", type=int, default=84, help="of two hours: 84 are seven days")
    parser.add_argument("--interval", type=int, default=30, help="seconds between samples")
    parser.add_argument("--plimsoll", default=ROOT / "target/release/plimsoll", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, help="keep the blocks there, or use those that are there")
    args = parser.parse_args()
    if args.containers < 1 or args.blocks < 1 or not 1 <= args.interval <= 240:
        parser.error("allowed: one container and block or more, 1 to 240 s between samples")
    for program in (TOOLS / "promtool", TOOLS / "prometheus", args.plimsoll):
        if not program.exists():
            die(f"{program} is missing; `make prometheus` and `cargo build --release -p plimsoll` make it")
    folder = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="screen-fleet-"))
    server = None
    try:
        if not (folder / "data").exists():
            folder.mkdir(parents=True, exist_ok=True)
            make_blocks(folder, args)
        server, url = serve(folder)
        took_s, cpu_s, memory_mib, found = screen(args, folder, url)
    finally:
        if server:
            server.terminate()
            server.wait()
        if not args.folder:
            shutil.rmtree(folder, ignore_errors=True)
    wrong = collections.Counter()
    for row in found["rows"]:
        kind = KINDS[int(row["pod"].removeprefix("pod-")) % len(KINDS)]
        if row["class"] != kind[-1]:
            wrong[f"{kind[-1]} called {row['class']}"] += 1
    missing = args.containers - len(found["rows"])
    print(f"{len(found['rows'])} containers, {args.blocks * 2} hours, {found['samples'] / 1e6:.1f} million samples: "
          f"{took_s:.1f} s, of them {cpu_s:.1f} s of CPU in screen; {memory_mib:.0f} MiB; "
          f"wrong {sum(wrong.values())}, missing {missing}")
    for what, count in wrong.items():
        print(f"  {count} {what}")
    for warning in found["warnings"]:
        print(f"  warning: {warning}")
    sys.exit(1 if wrong or missing else 0)


main()
