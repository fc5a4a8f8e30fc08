#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Is `plan` right for services as people run them? Five small ones, asked at a constant rate by a client that measures itself.

  go      each request is fanned out to four goroutines        java    a pool of eight threads, JIT and collector
  node    one event loop and its collector                     python  a thread a connection under one lock; one request in
  front   two processes: one asks the other, in one group              twenty takes ten times as long

and, with --services more, nineteen others (--services more --packages says what they need):

  gunicorn  three Python processes, a connection a request  tasks   Python's asyncio, which hands work to threads
  puma      Ruby, a pool of threads                         php     PHP's own server, three processes; closing ends an answer
  nginx     before two Node processes, in one group         cluster three Node processes, a parent that takes connections
  redis     Go, which asks redis in the same group          nio     Java, one thread that reads for four
  haproxy   before Go, two threads, in one group            streams Java's own server, parallel streams; Nagle holds answers
  fpm       nginx before PHP, over Unix streams             erlang  a process of Erlang's for each connection
  workers   Node with three worker threads               datagrams  Go over UDP, a goroutine and a port for each request
  tls       Go over HTTP/2, encrypted                    h2c        Go over HTTP/2, waiting 20 ms: several requests at once
  apache    four processes that run PHP themselves       outside    Go, which asks redis in another group
  away      Go, which waits 40 ms for redis there

(a) alone; (b) beside two spinning groups of the service's weight; (c) while throttled by a limit of 1.25 times its use.
In each the service is recorded with `record --cgroup` and nothing else said, planned, and run under what was recommended:

  p50, p99    what was recorded, and what the client (vegeta) measured of the same requests: within 10% and 15%, or 0.3 ms.
              What the client takes for itself is taken off first: the median by which it sees more than was recorded of a
              service that answers at once, beside the same spinning groups
  open        the client does not wait for answers: all requests are found to be open
  self-check  holds
  goal        p99 below four times what the client saw without a limit; every run under the recommended limit meets it
  reserves    (a) at most twice the cheapest limit of the same period and burst that really meets the goal, by bisection

"others" is what share of the machine was taken by what is not ours, while it was recorded, and in the worst run. Runs with
more than 5% are made again, up to three times.

Service and client are in network namespaces of their own, over a veth pair; the client's group weighs 100 times as much as
the service's, as if it were on another machine. Idle CPUs poll. Groups are made below /plimsoll-verify and removed again.
Exit: 0 all holds, 1 not, 3 this machine cannot do it.
"""
import argparse, csv, datetime, glob, json, os, pathlib, shutil, signal, subprocess, sys, tempfile, time
import cpu_groups, namespaces
from cpu_groups import TOP, die, finish, only_one, percentile, pipe, poll_when_idle, stop

HERE = pathlib.Path(__file__).parent
VEGETA = "github.com/tsenart/vegeta/v12@v12.13.0"
PACKAGES = ["iproute2", "golang-go", "default-jdk-headless", "nodejs", "python3"]
PROGRAMS = ["ip", "go", "javac", "node", "python3"]  # in the order of PACKAGES: a program from elsewhere does as well
RATE, GOAL_FACTOR, THROTTLE_FACTOR = 100, 4, 1.25
ALIKE = {"p50": 0.10, "p99": 0.15}
ALIKE_MS = 0.3
BISECTIONS = 4
LATE_MAX_S = 90
WARM_S = 20
DISTURBED = 0.05  # of the machine, taken by what is not ours: a run is then not of the service alone
SITUATIONS = {"a": "alone", "b": "beside two spinning groups", "c": "throttled"}

sources = HERE / "services"
SERVICES = {  # what is built, and the processes; {bin}: where built things are
    "go": (["go", "build", "-o", "{bin}/fanout", f"{sources}/fanout.go"], [["{bin}/fanout", "{at}:17501"]]),
    "java": (["javac", "-d", "{bin}", f"{sources}/Pool.java"], [["java", "-cp", "{bin}", "Pool", "{at}", "17501"]]),
    "node": (None, [["node", f"{sources}/loop.js", "{at}", "17501"]]),
    "python": (None, [[sys.executable, f"{sources}/lock.py", "{at}", "17501"]]),
    "front": (None, [["node", f"{sources}/loop.js", "{at}", "17502"],
                     ["node", f"{sources}/front.js", "{at}", "17501", "{at}", "17502"]]),
}
USUAL = list(SERVICES)
php = ["env", "PHP_CLI_SERVER_WORKERS=3", "php", "-S", "{at}:17501", "-t", f"{sources}"]
FILL = f"s,ADDRESS,{{at}},g; s,BIN,{{bin}},g; s,SOURCES,{sources},g"
PHP_MODULE = max(glob.glob("/usr/lib/apache2/modules/libphp*.so"), default="libphp.so")  # so has the module's
PHP_FPM = max(glob.glob("/usr/sbin/php-fpm*"), default="php-fpm")  # its name has the version
SERVICES |= {
    "gunicorn": (None, [["gunicorn", "--chdir", f"{sources}", "-w", "3", "-b", "{at}:17501", "app:app"]]),
    "tasks": (None, [[sys.executable, f"{sources}/tasks.py", "{at}", "17501"]]),
    "puma": (None, [["puma", "-t", "4:4", "-b", "tcp://{at}:17501", f"{sources}/config.ru"]]),
    "php": (None, [php]),
    "nginx": (["sh", "-c", f"sed '{FILL}' {sources}/nginx.conf >{{bin}}/nginx.conf"],
              [["node", f"{sources}/loop.js", "{at}", "17502"], ["node", f"{sources}/loop.js", "{at}", "17503"],
               ["nginx", "-c", "{bin}/nginx.conf"]]),
    "cluster": (None, [["node", f"{sources}/cluster.js", "{at}", "17501"]]),
    "redis": (["go", "build", "-o", "{bin}/backed", f"{sources}/backed.go"],
              [["redis-server", "--port", "17600", "--bind", "{at}", "--save", "", "--protected-mode", "no"],
               ["sh", "-c", "sleep 1; exec {bin}/backed {at}:17501 {at}:17600"]]),
    "nio": (["javac", "-d", "{bin}", f"{sources}/Chosen.java"], [["java", "-cp", "{bin}", "Chosen", "{at}", "17501"]]),
    "haproxy": (["sh", "-c", f"sed '{FILL}' {sources}/haproxy.cfg >{{bin}}/haproxy.cfg && go build -o {{bin}}/fanout {sources}/fanout.go"],
                [["{bin}/fanout", "{at}:17502"], ["haproxy", "-db", "-f", "{bin}/haproxy.cfg"]]),
    "streams": (["javac", "-d", "{bin}", f"{sources}/Streams.java"], [["java", "-cp", "{bin}", "Streams", "{at}", "17501"]]),
    "fpm": (["sh", "-c", f"for file in php-fpm php-nginx; do sed '{FILL}' {sources}/$file.conf >{{bin}}/$file.conf; done"],
            [[PHP_FPM, "-R", "-F", "-y", "{bin}/php-fpm.conf"], ["nginx", "-c", "{bin}/php-nginx.conf"]]),
    "erlang": (["erlc", "-o", "{bin}", f"{sources}/web.erl"], [["erl", "-noshell", "-pa", "{bin}", "-s", "web", "main"]]),
    "workers": (None, [["node", f"{sources}/workers.js", "{at}", "17501"]]),
    "datagrams": (["go", "build", "-o", "{bin}/datagrams", f"{sources}/datagrams.go"], [["{bin}/datagrams", "serve", "{at}:17501"]]),
    "tls": (["go", "build", "-o", "{bin}/streams", f"{sources}/streams.go"], [["{bin}/streams", "tls", "{at}:17501", "0"]]),
    "h2c": (["go", "build", "-o", "{bin}/streams", f"{sources}/streams.go"], [["{bin}/streams", "h2c", "{at}:17501", "20"]]),
    "apache": (["sh", "-c", f"sed '{FILL}; s,MODULE,{PHP_MODULE},' {sources}/apache.conf >{{bin}}/apache.conf"],
               [["/usr/sbin/apache2", "-f", "{bin}/apache.conf", "-D", "FOREGROUND"]]),
    "outside": (["go", "build", "-o", "{bin}/backed", f"{sources}/backed.go"],
                [["sh", "-c", "sleep 1; exec {bin}/backed {at}:17501 {at}:17600"]]),
    "away": (["go", "build", "-o", "{bin}/backed", f"{sources}/backed.go"],
             [["sh", "-c", "sleep 1; exec {bin}/backed {at}:17501 {at}:17600 32 0.03"]]),
}
# What a service asks that is not in its group.
OUTSIDE = dict.fromkeys(("outside", "away"), SERVICES["redis"][1][0])
ASKED = {"tls": ("https", ["-insecure"]), "h2c": ("http", ["-h2c"])}  # how, where not over HTTP/1.1
MORE = [name for name in SERVICES if name not in USUAL]
MORE_PACKAGES = ["gunicorn", "puma", "php-cli", "nginx-light", "redis-server", "haproxy", "php-fpm", "erlang-base",
                 "libapache2-mod-php"]
MORE_PROGRAMS = ["gunicorn", "puma", "php", "nginx", "redis-server", "haproxy", PHP_FPM, "erl", "/usr/sbin/apache2"]
# What answers at once, to each kind of client.
SERVICES["once"] = (SERVICES["go"][0], [["{bin}/fanout", "{at}:17501", "0"]])
SERVICES["datagrams-once"] = (SERVICES["datagrams"][0], [["{bin}/datagrams", "serve", "{at}:17501", "0"]])
OVER_UDP = {"datagrams", "datagrams-once"}


class Bench:
    """One service that runs, and its client."""

    def __init__(self, args, groups, nets, bin, work):
        self.args, self.groups, self.nets, self.bin, self.work = args, groups, nets, bin, work

    def start(self, name):
        build, commands = SERVICES[name]
        self.over_udp = name in OVER_UDP
        self.scheme, self.asked = ASKED.get(name, ("http", []))
        fill = lambda command: [part.format(bin=self.bin, at=namespaces.SERVICE) for part in command]
        if build:
            subprocess.run(fill(build), check=True, env=os.environ | {"GOFLAGS": "-mod=mod"})
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        inside = self.nets.inside(self.nets.service)
        self.processes = [self.groups.start("outside", fill(OUTSIDE[name]), inside, **quiet)] if name in OUTSIDE else []
        self.processes += [self.groups.start("service", fill(command), inside, **quiet) for command in commands]
        time.sleep(3)

    def warm(self):
        """Just-in-time compilers, pages, connections: as many requests as it can answer, more than compilers wait for, then
        until CPU use changes by less than 5%, or for ten runs."""
        self.end_attack(*self.begin_attack(WARM_S, as_many=True), answered=False)
        used = [self.attack(self.args.warm_seconds, answered=False)["cpus"]]
        while len(used) < 10 and (len(used) < 2 or abs(used[-1] / used[-2] - 1) > 0.05):
            used.append(self.attack(self.args.warm_seconds)["cpus"])

    def stop(self):
        for process in self.processes:
            stop(process)

    def begin_attack(self, seconds, as_many=False):
        """At a constant rate, or `as_many` as are answered, four at a time."""
        results = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "results"
        rate = "0" if as_many else str(self.args.rate)
        if self.over_udp:
            command = [f"{self.bin}/datagrams", "ask", f"{namespaces.SERVICE}:17501", rate, str(seconds), str(results)]
            return self.groups.start("client", command, self.nets.inside(self.nets.client), **pipe()), results
        targets = results.with_name("targets")
        targets.write_text(f"GET {self.scheme}://{namespaces.SERVICE}:17501/\n")
        command = [f"{self.bin}/vegeta", "attack", "-targets", str(targets), "-duration", f"{seconds}s", "-output", str(results),
                   "-rate", rate, *self.asked]
        if as_many:
            command += ["-workers", "4", "-max-workers", "4"]
        elif self.args.connections:
            most = str(self.args.connections)
            command += ["-connections", most, "-max-connections", most, "-workers", most, "-max-workers", most]
        return self.groups.start("client", command, self.nets.inside(self.nets.client), **pipe()), results

    def end_attack(self, client, results, answered=True):
        """Of each request: when it was sent, and how long it took, seconds and milliseconds."""
        finish(client, 120)
        rows = results.read_text() if self.over_udp else subprocess.run(
            [f"{self.bin}/vegeta", "encode", "--to", "csv", str(results)], capture_output=True, text=True, check=True).stdout
        csv.field_size_limit(1 << 24)
        rows = [(int(row[0]) / 1e9, int(row[2]) / 1e6, row[1]) for row in csv.reader(rows.splitlines())]
        failed = [row for row in rows if row[2] != "200"]
        if answered and (failed or not rows):
            raise RuntimeError(f"{len(failed)} of {len(rows)} requests were not answered")
        return sorted(row[:2] for row in rows)

    def attack(self, seconds, answered=True):
        """A run: what the client saw, what the group used, and what share of the machine all that is not ours took."""
        before, foreign, begin = self.groups.stat(), self.foreign_s(), time.monotonic()
        rows = self.end_attack(*self.begin_attack(seconds), answered)
        elapsed, after = time.monotonic() - begin, self.groups.stat()
        periods = after["nr_periods"] - before["nr_periods"]
        return seen(rows) | {"cpus": (after["usage_ns"] - before["usage_ns"]) / 1e9 / elapsed,
                             "throttled": (after["nr_throttled"] - before["nr_throttled"]) / periods if periods else 0.0,
                             "foreign": (self.foreign_s() - foreign) / elapsed / os.cpu_count()}

    def foreign_s(self):
        """CPU time of all that is not ours."""
        ticks = [int(field) for field in open("/proc/stat").readline().split()[1:9]]
        busy = sum(ticks) - ticks[3] - ticks[4]
        return busy / os.sysconf("SC_CLK_TCK") - self.groups.usage_ns() / 1e9

    def calm(self, seconds, limit=(None,)):
        """A run, under a limit or not, again where others disturbed it: the least disturbed of three."""
        runs = []
        while len(runs) < 3 and all(run["foreign"] > DISTURBED for run in runs):
            self.groups.limit(*limit)
            try:
                runs.append(self.attack(seconds))
            finally:
                self.groups.limit(None)
        return min(runs, key=lambda run: run["foreign"])

    def spin(self):
        """Two groups of the service's weight that each want a CPU; processes to be stopped."""
        command = ["sh", "-c", "while :; do :; done"]
        return [self.groups.start(name, command, self.nets.inside(self.nets.client)) for name in ("spinner-1", "spinner-2")]

    def record(self, trace, seconds):
        """What `record` says of the requests, and what the client measured of the same ones."""
        # Beside spinning groups of such a weight it takes seconds to move a process into a group; the client goes on until
        # the recording has ended.
        client, results = self.begin_attack(seconds + LATE_MAX_S)
        time.sleep(1)
        started = time.time()
        foreign, before = self.foreign_s(), self.groups.stat()
        # Our groups weigh a hundred times as much as what else runs: outside of them `record` is seconds late to start.
        command = [self.args.plimsoll, "record", "--cgroup", f"/{TOP}/service", "--duration", f"{seconds}s", "-o", str(trace),
                   "--json"]
        recorder = self.groups.start("client", command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said, error = recorder.communicate(timeout=seconds + LATE_MAX_S)
        cpus = (self.groups.stat()["usage_ns"] - before["usage_ns"]) / 1e9 / (time.time() - started)
        client.send_signal(signal.SIGINT)
        rows = self.end_attack(client, results)
        if recorder.returncode != 0:
            raise RuntimeError(f"record: exit {recorder.returncode}: {error.strip()}")
        report = json.loads(said)
        begin = report["begin_unix_ns"] / 1e9
        last = rows[-1][0]
        if last < begin + seconds:
            raise RuntimeError(f"recording began {begin - started:.1f} s after its start ({report['begin_ns'] / 1e9:.1f} s of that in "
                               f"`record`), and ended {begin + seconds - last:.1f} s after the client's last request")
        foreign = (self.foreign_s() - foreign) / (time.time() - started) / os.cpu_count()
        own = [row for row in rows if begin <= row[0] and row[0] + row[1] / 1e3 <= begin + seconds]
        return report, seen(own) | {"foreign": foreign, "cpus": cpus}


def seen(rows):
    latencies = [row[1] for row in rows]
    slowest = max(rows, key=lambda row: row[1], default=(0, 0))
    return {"count": len(rows), "p50": percentile(latencies, 50), "p99": percentile(latencies, 99), "max": slowest[1],
            "max_at_s": slowest[0] - rows[0][0] if rows else 0}


def plimsoll(args, *command):
    done = subprocess.run([args.plimsoll, *command], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"plimsoll {command[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def situation(bench, args, name, letter, free, own_ms, trace):
    """Records, plans, and runs under the recommended limit. `free`: a run alone and without a limit; `own_ms`: the client's."""
    groups, found = bench.groups, {"service": name, "situation": letter, "client_own_ms": own_ms}
    spinners = []
    limit = (max(1000, round(THROTTLE_FACTOR * free["cpus"] * 100000)), 100000) if letter == "c" else (None,)
    try:
        if letter == "b":
            spinners = bench.spin()
            free = bench.calm(args.seconds)
        found["unlimited"], found["goal_ms"] = free, GOAL_FACTOR * free["p99"]
        groups.limit(*limit)
        report, found["client"] = bench.record(trace, args.record_seconds)
        groups.limit(None)
        for spinner in spinners:  # the plan is not to wait for them
            stop(spinner)
        requests = report["requests"]
        found["recorded"] = requests
        if "none" in requests:
            raise RuntimeError(f"no requests were found: {requests['none']}")
        of = [str(trace), "--group", f"/{TOP}/service", "--json"]
        began = time.monotonic()
        planned = plimsoll(args, "plan", *of, "--goal", f"p99(request) < {found['goal_ms']:.6f}ms")
        found["plan_s"] = time.monotonic() - began
        found["self_check_holds"], found["plan"] = planned["self_check_holds"], planned["plan"]
        found["self_check"] = plimsoll(args, "simulate", "--replay", *of)["recordings"][0]["self_check"]
        recommended = planned["plan"]["recommended"]
        found["limit"] = (recommended["quota_us"], recommended["period_us"], recommended["burst_us"])
        spinners = bench.spin() if letter == "b" else []
        found["runs"] = [bench.calm(args.seconds, found["limit"]) for _ in range(args.repetitions)]
        if letter == "a" and recommended["quota_us"] and args.bisect:
            found["cheapest_us"], found["tried"] = cheapest(bench, args, found, free)
    finally:
        groups.limit(None)
        for spinner in spinners:
            stop(spinner)
    return found


def clients_own(bench, once, letters, out):
    """What the client takes for itself, ms, in each of the situations. `once`: what answers at once."""
    bench.start(once)
    own = {}
    try:
        bench.warm()
        for beside in {letter == "b" for letter in letters}:
            spinners = bench.spin() if beside else []
            try:
                report, client = bench.record(out / "at-once.trace", 5)
            finally:
                for spinner in spinners:
                    stop(spinner)
            recorded_ms = report["requests"]["p50_ns"] / 1e6
            print(f"The client's own part{' over UDP' if once in OVER_UDP else ''}{' beside spinning groups' if beside else ''}: "
                  f"{client['p50'] - recorded_ms:.3f} ms, of "
                  f"{client['p50']:.3f} ms for a service that answers at once (recorded: {recorded_ms:.3f})", flush=True)
            own |= {letter: client["p50"] - recorded_ms for letter in letters if (letter == "b") == beside}
    finally:
        bench.stop()
        (out / "at-once.trace").unlink(missing_ok=True)
    return own


def cheapest(bench, args, found, free):
    """The cheapest quota of the recommended period, burst in proportion, that meets the goal; all that were tried."""
    quota, period, burst = found["limit"]
    low, high, tried = min(quota, round(free["cpus"] * period)), quota, []
    for _ in range(BISECTIONS):
        middle = (low + high) // 2
        run = bench.calm(args.seconds, (middle, period, round(burst * middle / quota)))
        tried.append({"quota_us": middle} | run)
        low, high = (low, middle) if run["p99"] < found["goal_ms"] else (middle, high)
    return high, tried


def judge(found):
    """One row of the table: what was found in each column, and whether it holds."""
    client, recorded = found["client"], found["recorded"]
    most = max(run["foreign"] for run in [client, *found["runs"]])
    cells = [(f"{client['foreign']:.0%} to {most:.0%}", True)]
    for key, share in ALIKE.items():
        ours, theirs = recorded[f"{key}_ns"] / 1e6, client[key] - found["client_own_ms"]
        cells.append((f"{ours:.1f} for {theirs:.1f}", abs(ours - theirs) <= max(ALIKE_MS, share * theirs)))
    cells.append((f"{recorded['open']} of {recorded['open'] + recorded['closed']}", recorded["closed"] == 0))
    cells.append(("holds" if found["self_check_holds"] else "fails", found["self_check_holds"]))
    quota, period, burst = found["limit"]
    limit = f"{quota / period:.3f} CPUs ({period / 1000:g} ms{f', burst {burst / quota:.1f}' if burst else ''})" if quota else "no limit"
    met = all(run["p99"] < found["goal_ms"] for run in found["runs"]) and found["plan"]["verdict"] == "met"
    cells.append((limit, True))
    runs = ", ".join(f"{run['p99']:.1f}" for run in found["runs"])
    cells.append((f"{runs} for {found['goal_ms']:.1f}", met))
    if "cheapest_us" in found:
        ratio = quota / found["cheapest_us"]
        cells.append((f"{ratio:.2f}", ratio <= 2))
    else:
        cells.append(("-", True))
    return cells


HEADS = ["others", "p50, ms", "p99, ms", "open", "self-check", "recommended", "p99 under it, ms", "times the cheapest"]


def table(results):
    lines = ["| service | situation | " + " | ".join(HEADS) + " |", "|" + "---|" * (len(HEADS) + 2)]
    missed = 0
    for found in results:
        if "failed" in found:
            missed += 1
            lines.append(f"| {found['service']} | {SITUATIONS[found['situation']]} | **{found['failed']}** |" + " |" * (len(HEADS) - 1))
            continue
        cells = judge(found)
        missed += sum(not ok for _, ok in cells)
        lines.append(f"| {found['service']} | {SITUATIONS[found['situation']]} | "
                     + " | ".join(text if ok else f"**{text}**" for text, ok in cells) + " |")
    return "\n".join(lines), missed


def measure(args, groups, nets, bin, out):
    results, own = [], {}
    for over_udp in {name in OVER_UDP for name in args.services}:
        with tempfile.TemporaryDirectory(prefix="plimsoll-verify-") as directory:
            once = "datagrams-once" if over_udp else "once"
            own[over_udp] = clients_own(Bench(args, groups, nets, bin, directory), once, args.situations, out)
    print(flush=True)
    for name in args.services:
        with tempfile.TemporaryDirectory(prefix="plimsoll-verify-") as directory:
            bench = Bench(args, groups, nets, bin, directory)
            try:
                bench.start(name)
                bench.warm()
                free = bench.calm(args.seconds)
                for letter in args.situations:
                    trace = out / f"{name}-{letter}.trace"
                    try:
                        found = situation(bench, args, name, letter, free, own[name in OVER_UDP][letter], trace)
                    except (RuntimeError, OSError, subprocess.SubprocessError) as e:
                        found = {"service": name, "situation": letter, "failed": str(e)}
                    results.append(found)
                    (out / f"{name}-{letter}.json").write_text(json.dumps(found, indent=1) + "\n")
                    print(table([found])[0].splitlines()[-1], flush=True)
                    if "plan_s" in found:
                        times = ", ".join(f"{run['cpus'] / found['client']['cpus']:.2f}" for run in found["runs"])
                        print(f"  {found['recorded']['open'] + found['recorded']['closed']} requests, planned in "
                              f"{found['plan_s']:.0f} s; its runs took {times} times the CPU time of the recording", flush=True)
                    if not args.keep_traces:
                        trace.unlink(missing_ok=True)
            finally:
                bench.stop()
    return results


def chosen(kind, known):
    def parse(text):
        names = MORE if known is SERVICES and text == "more" else text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {kind} {name}: {', '.join(known)}")
        return names
    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="target/release/plimsoll")
    parser.add_argument("--services", type=chosen("service", SERVICES), default=USUAL,
                        help="names with commas between, or `more`; `once`, which answers at once, is in neither")
    parser.add_argument("--situations", type=chosen("situation", SITUATIONS), default=list(SITUATIONS), help="a,b,c")
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("--warm-seconds", type=int, default=4, help="of each run before the first")
    parser.add_argument("--record-seconds", type=int, default=15, help="of each recording")
    parser.add_argument("--repetitions", type=int, default=2, help="runs under the recommended limit")
    parser.add_argument("--rate", type=int, default=RATE, help="requests a second")
    parser.add_argument("--connections", type=int, help="that the client has at most [as many as it takes]")
    parser.add_argument("--no-bisect", dest="bisect", action="store_false", help="do not look for the cheapest limit")
    parser.add_argument("--bin", default="target/verify-plan", help="where services and vegeta are built")
    parser.add_argument("--out", help="where raw results go [bench/results/DATE-verify-services]")
    parser.add_argument("--keep-traces", action="store_true")
    parser.add_argument("--packages", action="store_true", help="print the Debian packages that are missing")
    args = parser.parse_args()
    more = any(name in MORE for name in args.services)
    packages, programs = PACKAGES + MORE_PACKAGES * more, PROGRAMS + MORE_PROGRAMS * more
    if args.packages:
        print("\n".join(package for package, program in zip(packages, programs) if not shutil.which(program)))
        return 0
    if os.geteuid() != 0:
        die(3, "groups, namespaces and BPF need root")
    lock = only_one()
    for program in programs:
        if not shutil.which(program):
            die(3, f"{program} is missing")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    bin = pathlib.Path(args.bin).absolute()
    bin.mkdir(parents=True, exist_ok=True)
    if not (bin / "vegeta").exists():
        built = subprocess.run(["go", "install", VEGETA], env=os.environ | {"GOBIN": str(bin)}, capture_output=True, text=True)
        if built.returncode != 0:
            die(3, f"vegeta cannot be built: {built.stderr.strip()}")
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    out = pathlib.Path(args.out or f"bench/results/{date}-verify-services")
    out.mkdir(parents=True, exist_ok=True)
    groups = cpu_groups.Groups(("service", "client", "outside", "spinner-1", "spinner-2"))
    groups.make()
    try:
        groups.weight("client", 100)
        groups.weight("outside", 100)
        idle = poll_when_idle()
        print(f"{os.uname().release}, {os.cpu_count()} CPUs, cgroup v{2 if groups.v2 else 1}; {args.rate} requests/s, recordings "
              f"of {args.record_seconds} s, runs of {args.seconds} s; {idle}\n", flush=True)
        nets = namespaces.Namespaces()
        results = measure(args, groups, nets, bin, out)
    except OSError as e:
        die(3, str(e))
    finally:
        groups.stop()
    text, missed = table(results)
    print(f"\nIn bold: missed.\n\n{text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
