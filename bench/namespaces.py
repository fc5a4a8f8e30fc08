# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two network namespaces with a veth pair between them: one for a service, as a container has, one for its client.

Nothing of them has a name and nothing of the machine's own network is changed: the kernel puts both away when the last
process and file that hold them are gone, however this program ends.
"""
import ctypes, os, signal, subprocess

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SERVICE, CLIENT = "198.18.77.1", "198.18.77.2"  # of the block that is set aside for benchmarks (RFC 2544)

libc = ctypes.CDLL(None, use_errno=True)


def checked(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


class Namespaces:
    def __init__(self):
        """Makes both. The calling process is in its own again afterwards."""
        own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.client = self.new()
            self.service = self.new()
            # The calling process is in the service's now.
            self.ip(self.client, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(os.getpid()))
            for namespace, name, address in ((self.client, "near", CLIENT), (self.service, "far", SERVICE)):
                self.ip(namespace, "address", "add", f"{address}/30", "dev", name)
                self.ip(namespace, "link", "set", name, "up")
                self.ip(namespace, "link", "set", "lo", "up")
        finally:
            checked(libc.setns(own, CLONE_NEWNET), "back to the first network namespace")
            os.close(own)

    def new(self):
        checked(libc.unshare(CLONE_NEWNET), "a network namespace cannot be made")
        return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def inside(self, namespace):
        """What a child calls before its program: it is in the namespace, and ends when this process does."""
        def enter():
            checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
            checked(libc.setns(namespace, CLONE_NEWNET), "setns")
        return enter

    def ip(self, namespace, *arguments):
        subprocess.run(["ip", *arguments], check=True, preexec_fn=self.inside(namespace))
