#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `plimsoll agent --labels` beside a real Podman: what a container is annotated with is held soon after it runs, survives `podman
# update`, and is gone when the agent is. `make test-containerd` fetches what it needs and runs it.
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
. checks.sh

mkdir -p /var/lib/containers /run/containers /var/tmp /tmp /logs /image/bin /etc/containers /dev/shm
mount -t tmpfs tmpfs /var/lib/containers
mount -t tmpfs tmpfs /dev/shm 2>/dev/null
mount --make-rshared /
echo '{"default":[{"type":"insecureAcceptAnything"}]}' >/etc/containers/policy.json
# The guest's kernel has no overlay: Podman keeps the files of each kind of storage in a folder of its own.
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' >/etc/containers/storage.conf
cat >/etc/containers/containers.conf <<END
[containers]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
no_pivot_root = true
[engine.runtimes]
runc = ["$(command -v runc)"]
END
echo "127.0.0.1 localhost" >/etc/hosts
podman version --format 'Podman {{.Client.Version}}' || exit 1
cp /bin/busybox /image/bin/ && for name in sh sleep; do ln -s busybox /image/bin/$name; done
tar -C /image -c . | podman import - work >/logs/import 2>&1 || fail "the image cannot be imported: $(cat /logs/import)"

# container NAME ARGUMENTS...: of half a CPU.
container() {
	name=$1; shift
	podman run -d --name "$name" --network none --cpu-quota 50000 --cpu-period 100000 "$@" work /bin/sleep 1000000 >"/logs/$name" 2>&1 || fail "container $name does not start: $(cat "/logs/$name")"
}
files() { echo "$(cat "$1/cpu.max") $(cat "$1/cpu.max.burst")"; }
# conmon has a cgroup of its own beside the container's.
cgroup() { find $root/libpod_parent -name "libpod-$(podman inspect --format '{{.Id}}' "$1")" -type d; }
# are NAME FILES
are() { [ "$(files "$(cgroup "$1")")" = "$2" ]; }

container before --rm --annotation plimsoll.dev/burst-us=10000
plimsoll agent --labels --listen 9469 >/logs/agent 2>&1 &
agent=$!
until_so "the agent does not start: $(tail -3 /logs/agent)" plimsoll status
until_so "a container that ran before the agent has $(files "$(cgroup before)")" are before "50000 100000 9999" &&
	holds "a container that ran before the agent has its burst"
container after --annotation plimsoll.dev/burst-us=20000
until_so "a container that came after it has $(files "$(cgroup after)")" are after "50000 100000 19999" &&
	holds "a container that came after it has its burst"
metric() { wget -qO- http://127.0.0.1:9469/metrics | grep '^container_cpu_usage_seconds_total' | grep "$1" | grep -q "$2"; }
until_so "no metric names the container and its image: $(wget -qO- http://127.0.0.1:9469/metrics | grep libpod | head -3)" metric 'name="after"' 'image="localhost/work:latest"' &&
	holds "metrics name the container and its image"
container plain
container wrong --annotation plimsoll.dev/burst-us=many --annotation plimsoll.dev/period-us=10000 --annotation plimsoll.dev/headroom-percent=50
said() { grep -q "$1" /logs/agent; }
for text in "container wrong: plimsoll.dev/burst-us=many: allowed are whole numbers from 0 to" \
	"container wrong: plimsoll.dev/period-us: only with --nri" \
	"container wrong: plimsoll.dev/headroom-percent=50: containers may not set it"; do
	until_so "it is not said: $text; but $(cat /logs/agent)" said "$text"
done
sleep 1
{ are plain "50000 100000 0" && are wrong "50000 100000 0"; } || fail "without a right annotation there is $(files "$(cgroup plain)"), $(files "$(cgroup wrong)")"
holds "wrong annotations are named, and change nothing"
# The kernel refuses a quota below the burst: the agent gives the burst back, and the next try succeeds.
podman update --cpu-quota 10000 after >/dev/null 2>&1 || { sleep 1; podman update --cpu-quota 10000 after >/dev/null || fail "a resize below the burst is refused twice"; }
until_so "after the resize there is $(files "$(cgroup after)")" grep -q -v "^50000" "$(cgroup after)/cpu.max"
podman update --cpu-quota 40000 after >/dev/null || fail "a resize upwards is refused"
sleep 12
are after "40000 100000 19999" || fail "12 s after the resize there is $(files "$(cgroup after)")"
holds "resizes go through, and the burst comes back"
podman rm -f -t 0 before plain wrong >/dev/null
kill "$agent"; wait "$agent"
are after "40000 100000 0" || fail "after the agent there is $(files "$(cgroup after)")"
left=$(plimsoll agent --restore 2>&1)
[ "$left" = "plimsoll: 0 groups of an earlier agent were put back" ] || fail "after its end the journal leaves: $left"
holds "after the agent the files are as Podman left them"
if [ $failed = 0 ]; then echo "all holds"; else cat /logs/agent; exit 1; fi
