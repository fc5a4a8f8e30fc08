#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `plimsoll agent --nri` beside a real containerd: annotated pods through its CRI, a resize, an agent that is killed, pods that come
# and go; then `agent --cri`, as where there is no NRI. `make test-containerd` fetches what it needs and runs it. $1: pods that come
# and go.
# Exit: 0 all holds, 1 something does not.
pods=${1:-8}
root=/sys/fs/cgroup
. checks.sh
cri() { crictl -r unix:///run/containerd/containerd.sock -t 120s "$@"; }

# A root that can be left: the guest's own is the initramfs, which pivot_root refuses; runc then moves it instead.
mkdir -p /var/lib/containerd /etc/containerd /logs
mount -t tmpfs tmpfs /var/lib/containerd
mount --make-rshared /
# What the runtime copies into pods, and crictl looks for.
touch /etc/resolv.conf /etc/hosts /etc/hostname /etc/crictl.yaml
cat >/etc/containerd/config.toml <<-'EOF'
	version = 3
	[plugins.'io.containerd.cri.v1.images']
	  snapshotter = "native"
	[plugins.'io.containerd.cri.v1.images'.pinned_images]
	  sandbox = "plimsoll.test/work:1"
	[plugins.'io.containerd.cri.v1.runtime']
	  disable_apparmor = true
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
	  runtime_type = "io.containerd.runc.v2"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
	  NoPivotRoot = true
	  SystemdCgroup = false
EOF
containerd --log-level info >/logs/containerd 2>&1 &
until_so "containerd does not answer: $(tail -5 /logs/containerd)" cri version || exit 1
cri version | tr '\n' ' '; echo
[ -S /var/run/nri/nri.sock ] || fail "containerd has no NRI socket"

# An image of busybox alone, made here.
mkdir -p /image/bin && cp /bin/busybox /image/bin/ && for name in sh cat sleep echo; do ln -s busybox /image/bin/$name; done
tar -cf /layer.tar -C /image .
sum=$(sha256sum /layer.tar | cut -d' ' -f1)
cat >/config.json <<-EOF
	{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
	 "rootfs": {"type": "layers", "diff_ids": ["sha256:$sum"]}}
EOF
echo '[{"Config": "config.json", "RepoTags": ["plimsoll.test/work:1"], "Layers": ["layer.tar"]}]' >/manifest.json
tar -cf /image.tar -C / manifest.json config.json layer.tar
ctr -n k8s.io images import --snapshotter native --local /image.tar || fail "the image cannot be imported"

agent() { # --nri or --cri
	plimsoll agent "$1" --listen 9469 >>/logs/agent 2>&1 &
	agent=$!
	until_so "the agent does not start: $(tail -3 /logs/agent)" plimsoll status
}
# pod NAME ANNOTATIONS [COMMAND]: prints the container's number. It says what its limits are as the first thing that it does.
says="cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.max.burst"
pod() {
	cat >/pod.json <<-EOF
		{"metadata": {"name": "$1", "namespace": "shop", "uid": "uid-$1", "attempt": 1}, "log_directory": "/logs/$1",
		 "annotations": {$2}, "linux": {"cgroup_parent": "/kubepods/pod-$1",
		 "security_context": {"namespace_options": {"network": 2}}}}
	EOF
	cat >/container.json <<-EOF
		{"metadata": {"name": "web", "attempt": 1}, "image": {"image": "plimsoll.test/work:1"}, "log_path": "web",
		 "command": ["/bin/sh", "-c", "$says; ${3:-}exec sleep 1000000"],
		 "linux": {"resources": {"cpu_quota": 30000, "cpu_period": 100000},
		 "security_context": {"namespace_options": {"network": 2}}}}
	EOF
	mkdir -p "/logs/$1"
	# The kubelet makes a pod's cgroup.
	mkdir -p $root/kubepods/pod-$1
	echo +cpu >$root/kubepods/cgroup.subtree_control
	echo +cpu >$root/kubepods/pod-$1/cgroup.subtree_control
	cri run --no-pull /container.json /pod.json
}
remove() { # NAME
	cri rmp -f "$(cri pods -q --name "$1")" >/dev/null || fail "pod $1 cannot be removed"
	until_so "the cgroup of pod $1 stays" rmdir $root/kubepods/pod-$1
}
first() { sed 's/^[^ ]* [^ ]* [^ ]* //' "/logs/$1/web" | tr '\n' ' '; }
ran() { [ "$(first "$1" | wc -w)" = 3 ]; }
# first_is NAME EXPECTED
first_is() {
	until_so "pod $1 says nothing: $(tail -3 /logs/containerd)" ran "$1"
	if [ "$(first "$1")" = "$2 " ]; then holds "$1 begins with cpu.max and burst $2"; else fail "$1 begins with $(first "$1"), not $2"; fi
}
group() { echo $root/kubepods/pod-$1/*[0-9a-f]* | tr ' ' '\n' | while read -r path; do
	[ "$(cat "$path/cpu.max" 2>/dev/null)" = "max 100000" ] || echo "$path"; done | head -1; }

mkdir -p $root/kubepods
# A quota all along: with the first and the last one Linux patches its code, which some emulated CPUs trip over (int3 in dequeue_entity).
mkdir $root/held && echo "50000 100000" >$root/held/cpu.max
agent --nri
container=$(pod burst '"plimsoll.dev/burst-us": "20000"') || { tail -5 /logs/containerd; fail "pod burst does not start"; exit 1; }
first_is burst "30000 100000 19999"
pod period '"plimsoll.dev/period-us": "10000", "plimsoll.dev/burst-us.web": "2000"' >/dev/null || fail "pod period does not start"
first_is period "3000 10000 1999"
pod plain '' >/dev/null || fail "pod plain does not start"
first_is plain "30000 100000 0"
pod wrong '"plimsoll.dev/burst-us": "many"' >/dev/null || fail "a wrong annotation keeps a pod from starting"
first_is wrong "30000 100000 0"
grep -q "pod shop/wrong, container web: plimsoll.dev/burst-us=many: allowed are whole numbers from 0 to" /logs/agent ||
	fail "the wrong annotation is not named: $(cat /logs/agent)"

metric() { wget -qO- http://127.0.0.1:9469/metrics | grep '^container_cpu_usage_seconds_total' | grep 'namespace="shop"' | grep 'pod="burst"' | grep -q 'container="web"'; }
until_so "no metric names pod and container: $(wget -qO- http://127.0.0.1:9469/metrics | grep pod-burst | head -3)" metric &&
	holds "metrics name namespace, pod and container"
burst=$(find $root/kubepods/pod-burst -name "$container*" -type d)
cri update --cpu-quota 10000 --cpu-period 100000 "$container" >/dev/null || fail "a resize below the burst is refused"
quota() { [ "$(cut -d' ' -f1 "$burst/cpu.max")" -ge "$1" ] && [ "$(cut -d' ' -f1 "$burst/cpu.max")" -le "$2" ]; }
until_so "after the resize cpu.max is $(cat "$burst/cpu.max")" quota 10000 30000
plimsoll status "$burst" | grep -q . || fail "no status of $burst"
cri update --cpu-quota 40000 --cpu-period 100000 "$container" >/dev/null || fail "a resize upwards is refused"
[ "$(cat "$burst/cpu.max") $(cat "$burst/cpu.max.burst")" = "40000 100000 19999" ] ||
	fail "after the resize there is $(cat "$burst/cpu.max") $(cat "$burst/cpu.max.burst")"
sleep 1
[ "$(cat "$burst/cpu.max.burst")" = 19999 ] || fail "a second after the resize the burst is $(cat "$burst/cpu.max.burst")"
holds "resizes below the burst and above it go through, and the burst comes back"

kill -9 "$agent"; wait "$agent" 2>/dev/null
[ "$(cat "$burst/cpu.max.burst")" = 19999 ] || fail "a killed agent's burst is $(cat "$burst/cpu.max.burst")"
plimsoll agent --restore 2>>/logs/agent || fail "it cannot be put back"
[ "$(cat "$burst/cpu.max") $(cat "$burst/cpu.max.burst")" = "40000 100000 0" ] ||
	fail "put back is $(cat "$burst/cpu.max") $(cat "$burst/cpu.max.burst")"
agent --nri
is_back() { [ "$(cat "$burst/cpu.max.burst")" = 19999 ]; }
until_so "the next agent does not set the burst of what runs" is_back && holds "killed with -9, put back, and begun again with what runs"
pod unmanaged '' >/dev/null; remove unmanaged

# A runtime that is started again.
kill "$(pidof containerd)"; sleep 1
containerd --log-level info >>/logs/containerd 2>&1 &
back() { grep -q "the runtime is back" /logs/agent; }
until_so "the agent does not find the runtime again" back && holds "the agent finds a runtime that was started again"
until_so "containerd does not answer" cri version
is_back || fail "with the runtime begun again the burst is $(cat "$burst/cpu.max.burst")"
for name in burst period plain wrong; do remove $name; done

# What is left after crowds: descriptors, memory, watches, lines of the journal.
open() { ls /proc/$agent/fd | wc -l; }
watches() { cat /proc/$agent/fdinfo/* 2>/dev/null | grep -c '^inotify'; }
memory() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' /proc/$agent/status; }
lines() { wc -l </run/plimsoll/agent.journal; }
settled() { [ "$(open)" -le "$open_before" ] && [ "$(watches)" -le "$watches_before" ]; }
counts() {
	echo "$open_before descriptors, then $(open); $watches_before watches, then $(watches); $memory_before kB, then $(memory);" \
		"$lines_before lines of the journal, then $(lines)"
}
# crowd NAME NUMBER: one pod after the other, and what they leave.
crowd() {
	pod "warm$1" '"plimsoll.dev/burst-us": "20000"' >/dev/null; remove "warm$1"
	# The last watch of a pod that is gone may be dropped a moment later: there may be fewer in the end, and no more.
	open_before=$(open) watches_before=$(watches) memory_before=$(memory) lines_before=$(lines)
	number=0
	while [ $number -lt "$2" ]; do
		number=$((number + 1))
		container=$(pod "$1$number" '"plimsoll.dev/burst-us": "20000"') || fail "pod $1$number does not start"
		until_so "pod $1$number says nothing" ran "$1$number"
		burst=$(find $root/kubepods/pod-$1$number -name "$container*" -type d)
		until_so "$1$number has a burst of $(cat "$burst/cpu.max.burst")" is_back
		remove "$1$number"
		# What grows all along is told from what is taken once.
		[ $((number % 50)) != 0 ] || echo "after $number: $(counts)"
	done
	until_so "$2 pods leave something: $(counts)" settled && holds "$2 pods leave nothing: $(counts)"
}
number=0
crowd crowd "$pods"
while [ $number -gt 0 ]; do
	[ "$(first "crowd$number")" = "30000 100000 19999 " ] || fail "crowd$number begins with $(first "crowd$number")"
	number=$((number - 1))
done

# Without NRI: the burst comes a moment after the container began.
kill "$agent"; wait "$agent"
agent --cri
grep -q "the runtime at /run/containerd/containerd.sock is containerd" /logs/agent || fail "--cri does not find the runtime: $(tail -3 /logs/agent)"
waits="cat /proc/uptime; until [ \$(cat /sys/fs/cgroup/cpu.max.burst) != 0 ]; do sleep 0.01; done; cat /proc/uptime; "
container=$(pod cri '"plimsoll.dev/burst-us": "100", "plimsoll.dev/burst-us.web": "20000", "plimsoll.dev/period-us": "10000"' "$waits") ||
	fail "pod cri does not start"
burst=$(find $root/kubepods/pod-cri -name "$container*" -type d)
until_so "with --cri the burst is $(cat "$burst/cpu.max.burst")" is_back && holds "a pod that comes has its burst by --cri"
has_it() { [ "$(first cri | wc -w)" = 7 ]; }
until_so "pod cri does not see its burst: $(first cri)" has_it
echo "seconds after the start of the machine: begun, burst seen: $(first cri | cut -d' ' -f4,6)"
grep -q "pod shop/cri, container web: plimsoll.dev/period-us: only with --nri" /logs/agent || fail "the period is not refused: $(tail -3 /logs/agent)"
# A runtime that hangs as a cgroup comes whose name is a container's.
number=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
kill -STOP "$(pidof containerd)"
mkdir "$root/kubepods/$number"
hangs() { grep -q "the runtime does not answer (no answer within 2 s)" /logs/agent; }
until_so "a runtime that hangs is not said: $(tail -3 /logs/agent)" hangs
plimsoll status "$burst" | grep -q . || fail "beside a runtime that hangs the agent does"
kill -CONT "$(pidof containerd)"
answers() { grep -q "the runtime answers again" /logs/agent; }
until_so "the agent does not find the runtime again" answers && holds "a runtime that hangs is said, and found again"
rmdir "$root/kubepods/$number"
kill "$agent"; wait "$agent"
[ "$(cat "$burst/cpu.max.burst")" = 0 ] || fail "after its end the burst is $(cat "$burst/cpu.max.burst")"
agent --cri
until_so "the next agent does not set the burst of what runs" is_back && holds "what runs already has its burst by --cri"
remove cri
crowd cri $(((pods + 3) / 4))
kill "$agent"; wait "$agent"
left=$(plimsoll agent --restore 2>&1)
[ "$left" = "plimsoll: 0 groups of an earlier agent were put back" ] || fail "after its end the journal leaves: $left"
grep warning /logs/agent | grep -v -e "wrong, container web" -e "the runtime is lost" -e "the runtime does not answer" -e "only with --nri" && fail "the agent warned of what is not expected"
if [ $failed = 0 ]; then echo "all holds"; else tail -20 /logs/containerd; cat /logs/agent; exit 1; fi
