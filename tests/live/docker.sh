#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `plimsoll agent --labels` beside a real Docker: what a container is labelled with is held soon after it runs, survives `docker
# update`, and is gone when the agent is. `make test-containerd` fetches what it needs and runs it.
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
. checks.sh

mkdir -p /var/lib/docker /logs /image/bin
mount -t tmpfs tmpfs /var/lib/docker
mount --make-rshared /
# The guest's root is the initramfs, which pivot_root refuses.
export DOCKER_RAMDISK=true
dockerd --bridge none --iptables=false --ip6tables=false --storage-driver vfs --exec-opt native.cgroupdriver=cgroupfs >/logs/docker 2>&1 &
until_so "Docker does not answer: $(tail -5 /logs/docker)" docker version || exit 1
docker version --format 'Docker {{.Server.Version}}'
cp /bin/busybox /image/bin/ && for name in sh sleep; do ln -s busybox /image/bin/$name; done
tar -C /image -c . | docker import - work >/dev/null || fail "the image cannot be imported"

# container NAME ARGUMENTS...: of half a CPU.
container() {
	name=$1; shift
	docker run -d --name "$name" --net none --cpu-quota 50000 --cpu-period 100000 "$@" work /bin/sleep 1000000 >/dev/null || fail "container $name does not start"
}
files() { echo "$(cat "$1/cpu.max") $(cat "$1/cpu.max.burst")"; }
cgroup() { find $root/docker -name "$(docker inspect --format '{{.Id}}' "$1")*" -type d; }
# are NAME FILES
are() { [ "$(files "$(cgroup "$1")")" = "$2" ]; }

container before --label plimsoll.dev/burst-us=10000
plimsoll agent --labels --listen 9469 >/logs/agent 2>&1 &
agent=$!
until_so "the agent does not start: $(tail -3 /logs/agent)" plimsoll status
until_so "a container that ran before the agent has $(files "$(cgroup before)")" are before "50000 100000 9999" &&
	holds "a container that ran before the agent has its burst"
container after --label plimsoll.dev/burst-us=20000
until_so "a container that came after it has $(files "$(cgroup after)")" are after "50000 100000 19999" &&
	holds "a container that came after it has its burst"
metric() { wget -qO- http://127.0.0.1:9469/metrics | grep '^container_cpu_usage_seconds_total' | grep "$1" | grep -q "$2"; }
until_so "no metric names the container and its image: $(wget -qO- http://127.0.0.1:9469/metrics | grep docker | head -3)" metric 'name="after"' 'image="work"' &&
	holds "metrics name the container and its image"
container plain
container wrong --label plimsoll.dev/burst-us=many --label plimsoll.dev/period-us=10000 --label plimsoll.dev/headroom-percent=50
said() { grep -q "$1" /logs/agent; }
for text in "container wrong: plimsoll.dev/burst-us=many: allowed are whole numbers from 0 to" \
	"container wrong: plimsoll.dev/period-us: only with --nri" \
	"container wrong: plimsoll.dev/headroom-percent=50: containers may not set it"; do
	until_so "it is not said: $text; but $(cat /logs/agent)" said "$text"
done
sleep 1
{ are plain "50000 100000 0" && are wrong "50000 100000 0"; } || fail "without a right label there is $(files "$(cgroup plain)"), $(files "$(cgroup wrong)")"
holds "wrong labels are named, and change nothing"
# Docker writes the quota, which the kernel refuses below the burst: the agent gives the burst back, and the next try succeeds.
docker update --cpu-quota 10000 after >/dev/null 2>&1 || { sleep 1; docker update --cpu-quota 10000 after >/dev/null || fail "a resize below the burst is refused twice"; }
until_so "after the resize there is $(files "$(cgroup after)")" grep -q -v "^50000" "$(cgroup after)/cpu.max"
docker update --cpu-quota 40000 after >/dev/null || fail "a resize upwards is refused"
sleep 12
are after "40000 100000 19999" || fail "12 s after the resize there is $(files "$(cgroup after)")"
holds "resizes go through, and the burst comes back"
docker rm -f before plain wrong >/dev/null
kill "$agent"; wait "$agent"
are after "40000 100000 0" || fail "after the agent there is $(files "$(cgroup after)")"
left=$(plimsoll agent --restore 2>&1)
[ "$left" = "plimsoll: 0 groups of an earlier agent were put back" ] || fail "after its end the journal leaves: $left"
holds "after the agent the files are as Docker left them"
if [ $failed = 0 ]; then echo "all holds"; else tail -20 /logs/docker; cat /logs/agent; exit 1; fi
