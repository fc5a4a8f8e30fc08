# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Groups of the cpu controller for what verify-plan runs, and processes in them."""
import fcntl, os, pathlib, signal, subprocess, sys, time

TOP = "plimsoll-verify"


def die(code, text):
    print(f"error: {text}", file=sys.stderr)
    sys.exit(code)


def only_one():
    """Ends this run where another is under way: each would measure the other's service. Keep what it returns."""
    lock = open("/run/plimsoll-verify-plan.lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        die(3, "another verify-plan is running")
    return lock


class Groups:
    """The cpu controller, v1 or v2: a top group with some below, of which one is the service's, one its client's."""

    def __init__(self, names=("service", "client")):
        self.names, self.children = names, []
        self.v2 = None
        for line in open("/proc/mounts"):
            _, where, kind, options = line.split()[:4]
            if kind == "cgroup" and "cpu" in options.split(","):
                self.root, self.v2 = where, False
            elif kind == "cgroup2" and self.v2 is None:
                if "cpu" in open(f"{where}/cgroup.controllers").read().split():
                    self.root, self.v2 = where, True
        if self.v2 is None:
            die(3, "no cpu controller is mounted (cgroup v1 or v2)")

    def path(self, name, file=""):
        return f"{self.root}/{TOP}{'/' + name if name else ''}{'/' + file if file else ''}"

    def write(self, name, file, value):
        with open(self.path(name, file), "w") as f:
            f.write(str(value))

    def make(self):
        try:
            for name in ("", *self.names):
                os.makedirs(self.path(name), exist_ok=True)
                if self.v2 and name == "":
                    pathlib.Path(f"{self.root}/cgroup.subtree_control").write_text("+cpu")
                    self.write("", "cgroup.subtree_control", "+cpu")
            # Whatever else runs on this machine gets what is left over.
            self.write("", "cpu.weight" if self.v2 else "cpu.shares", 10000 if self.v2 else 102400)
        except OSError as e:
            die(3, f"groups cannot be made: {e}")

    def remove(self):
        paths = [self.path(name) for name in (*self.names, "")]
        for path in paths + ([] if self.v2 else [path.replace("/cpu/", "/cpuacct/") for path in paths]):
            for _ in range(50):
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.1)

    def weight(self, name, of_default):
        """The weight of a group, as a multiple of what a new one has."""
        self.write(name, "cpu.weight" if self.v2 else "cpu.shares", int((100 if self.v2 else 1024) * of_default))

    def limit(self, quota_us, period_us=100000, burst_us=0):
        if self.v2:
            self.write("service", "cpu.max.burst", 0)
            self.write("service", "cpu.max", f"{quota_us or 'max'} {period_us}")
            self.write("service", "cpu.max.burst", burst_us)
        else:
            self.write("service", "cpu.cfs_burst_us", 0)
            self.write("service", "cpu.cfs_quota_us", -1)
            self.write("service", "cpu.cfs_period_us", period_us)
            self.write("service", "cpu.cfs_quota_us", quota_us or -1)
            if burst_us:
                self.write("service", "cpu.cfs_burst_us", burst_us)

    def stat(self):
        found = dict(line.split() for line in open(self.path("service", "cpu.stat")))
        return {"usage_ns": self.usage_ns("service"), "nr_periods": int(found["nr_periods"]), "nr_throttled": int(found["nr_throttled"])}

    def usage_ns(self, name=""):
        """CPU time of a group and those below; without a name, of all that runs here."""
        if self.v2:
            return int(dict(line.split() for line in open(self.path(name, "cpu.stat")))["usage_usec"]) * 1000
        shared = self.path(name, "cpuacct.usage")
        return int(open(shared if os.path.exists(shared) else f"{self.accounting(name)}/cpuacct.usage").read())

    def accounting(self, name):
        """On v1 the use may be counted by another controller, where groups have to be made, too; `None`: it is not."""
        if self.v2 or os.path.exists(self.path(name, "cpuacct.usage")):
            return None
        path = self.path(name).replace("/cpu/", "/cpuacct/")
        os.makedirs(path, exist_ok=True)
        return path

    def start(self, name, command, inside=lambda: None, **kwargs):
        """Starts a command in a group and a session of its own; `inside` is called in the child first."""
        def enter():
            os.setsid()
            inside()
            for path in (self.path(name), self.accounting(name)):
                if path:
                    pathlib.Path(f"{path}/cgroup.procs").write_text(str(os.getpid()))

        child = subprocess.Popen(command, preexec_fn=enter, stdin=subprocess.DEVNULL, **kwargs)
        self.children.append(child)
        return child

    def stop(self):
        for child in self.children:
            stop(child)
        self.remove()


def poll_when_idle():
    """Holds the kernel's idle states at polling for as long as this process lives; a line on what came of it."""
    try:
        driver = pathlib.Path("/sys/devices/system/cpu/cpuidle/current_driver").read_text().strip()
    except OSError:
        driver = "none"
    if driver == "none":
        return "idle CPUs halt (no cpuidle driver)"
    try:
        held = os.open("/dev/cpu_dma_latency", os.O_WRONLY | os.O_CLOEXEC)
        os.write(held, (0).to_bytes(4, sys.byteorder))
    except OSError as e:
        return f"idle CPUs halt (cpu_dma_latency: {e.strerror})"
    return f"idle CPUs poll (cpu_dma_latency 0, cpuidle driver {driver})"


def finish(child, seconds):
    try:
        out, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise RuntimeError("the client did not come to an end")
    return out.decode() if out else ""


def stop(child):
    if child.poll() is None:
        try:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -(-len(ordered) * percent // 100) - 1))] if ordered else 0.0


def pipe():
    return {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
