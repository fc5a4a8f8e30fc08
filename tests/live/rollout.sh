#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# docs/src/how-to/roll-out.md, "A cluster", from its first step to its last on a real Kubernetes of three nodes, by its own
# commands: the plain YAML; then the chart, with annotations and a canary. `make test-rollout` builds what it needs and runs it.
# Exit: 0 all holds, 1 something does not.
root=/sys/fs/cgroup
. checks.sh
# What is emulated starts slowly.
patience=400
export KUBECONFIG=/admin.conf
mkdir -p /logs /opt/cni/bin /cluster
mv /usr/local/bin/ptp /usr/local/bin/host-local /opt/cni/bin
# What the runtime copies into pods.
touch /etc/resolv.conf /etc/hostname
# One place for sockets, of which each node has its own.
rm -rf /var/run
ln -s /run /var/run
echo "+memory +pids" >$root/cgroup.subtree_control
for address in 10.99.0.100 10.99.0.1 10.99.0.2 10.99.0.3; do ip addr add $address/32 dev lo; done
echo 1 >/proc/sys/net/ipv4/ip_forward

# The cluster. Who has the token may do everything; nothing of it leaves the guest.
openssl genrsa -out /cluster/account.key 2048 2>/dev/null
echo "plimsoll-test,admin,admin,system:masters" >/cluster/tokens
cat >/admin.conf <<-'EOT'
	apiVersion: v1
	kind: Config
	clusters: [{name: test, cluster: {server: "https://10.99.0.100:6443", insecure-skip-tls-verify: true}}]
	users: [{name: admin, user: {token: plimsoll-test}}]
	contexts: [{name: test, context: {cluster: test, user: admin}}]
	current-context: test
EOT
etcd --data-dir /cluster/etcd --unsafe-no-fsync >/logs/etcd 2>&1 &
kube-apiserver --etcd-servers http://127.0.0.1:2379 --advertise-address 10.99.0.100 --cert-dir /cluster/apiserver \
	--token-auth-file /cluster/tokens --authorization-mode Node,RBAC --service-cluster-ip-range 10.96.0.0/16 \
	--service-account-issuer https://plimsoll.test --service-account-key-file /cluster/account.key \
	--service-account-signing-key-file /cluster/account.key --allow-privileged=false --kubelet-preferred-address-types InternalIP >/logs/apiserver 2>&1 &
ready() { kubectl get --raw /readyz; }
until_so "the API server is not ready: $(tail -3 /logs/apiserver)" ready || exit 1
kube-controller-manager --kubeconfig /admin.conf --service-account-private-key-file /cluster/account.key \
	--root-ca-file /cluster/apiserver/apiserver.crt >/logs/controllers 2>&1 &
kube-scheduler --kubeconfig /admin.conf >/logs/scheduler 2>&1 &

# An image of busybox alone, made here.
mkdir -p /image/bin && cp /bin/busybox /image/bin/ && for name in sh cat sleep; do ln -s busybox /image/bin/$name; done
tar -cf /layer.tar -C /image .
sum=$(sha256sum /layer.tar | cut -d' ' -f1)
cat >/config.json <<-EOT
	{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
	 "rootfs": {"type": "layers", "diff_ids": ["sha256:$sum"]}}
EOT
echo '[{"Config": "config.json", "RepoTags": ["plimsoll.test/work:1"], "Layers": ["layer.tar"]}]' >/manifest.json
tar -cf /work.tar -C / manifest.json config.json layer.tar

for number in 1 2 3; do
	mkdir $root/node$number
	sh -c "echo \$\$ >$root/node$number/cgroup.procs; exec /usr/local/bin/unshare -C -m sh /usr/local/bin/kubernetes-node.sh $number" \
		>/logs/node-$number 2>&1 &
done
is_ready() { [ "$(kubectl get nodes --no-headers | grep -c ' Ready ')" = 3 ]; }
until_so "the nodes are not ready" is_ready || { kubectl get nodes; tail -n 30 /logs/*; exit 1; }
kubectl version | tr '\n' ' '; kubectl get nodes -o wide

# web NODE [ANNOTATIONS]: a service of one container with a limit of 0.3 CPUs. It says what its limits are as the first thing that it does.
kubectl create namespace shop >/dev/null
has_account() { kubectl get serviceaccount -n shop default && kubectl get serviceaccount -n kube-system default; }
until_so "there are no service accounts" has_account
web() {
	kubectl apply -f - >/dev/null <<-EOT || fail "pod web-$1 is refused"
		apiVersion: v1
		kind: Pod
		metadata: {name: web-$1, namespace: shop, annotations: {$2}}
		spec:
		  nodeName: node$1
		  automountServiceAccountToken: false
		  terminationGracePeriodSeconds: 0
		  containers:
		  - name: web
		    image: plimsoll.test/work:1
		    imagePullPolicy: Never
		    command: [/bin/sh, -c, "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.max.burst; exec sleep 1000000"]
		    resources: {requests: {cpu: 100m}, limits: {cpu: 300m}}
	EOT
	until_so "web-$1 does not run" runs web-$1 || {
		kubectl describe pod -n shop web-$1
		tail -n 30 "/logs/containerd-$1" "/logs/kubelet-$1"
		exit 1
	}
}
runs() { [ "$(kubectl get pod -n shop "$1" -o 'jsonpath={.status.phase}')" = Running ]; }
first() { kubectl logs -n shop web-$1 | tr '\n' ' '; }
# The groups of pod and container, as the guest's root sees them.
pod_of() { echo $root/node$1/kubepods/burstable/pod$(kubectl get pod -n shop web-$1 -o 'jsonpath={.metadata.uid}'); }
container_of() { echo "$(pod_of $1)/$(kubectl get pod -n shop web-$1 -o 'jsonpath={.status.containerStatuses[0].containerID}' | sed 's,.*//,,')"; }
limits() { for group in "$(pod_of $1)" "$(container_of $1)"; do cat "$group/cpu.max" "$group/cpu.max.burst"; done | tr '\n' ' '; }
# limits_are NODE "MAX BURST": of pod and container alike.
limits_are() { [ "$(limits $1)" = "$2 $2 " ]; }
owners="30000 100000 0"
until_limits() { until_so "$3: web-$1 has $(limits $1), not $2 twice" limits_are "$1" "$2" && holds "$3: web-$1 has cpu.max and burst $2, the pod and the container"; }
# Not one that ends.
agent_on() { kubectl get pods -n kube-system -l app.kubernetes.io/name=plimsoll-agent --field-selector spec.nodeName=node$1 --no-headers | sed -n 's/ .* Running .*//p'; }
agents_ready() { [ "$(kubectl get pods -n kube-system -l app.kubernetes.io/name=${2:-plimsoll-agent} --no-headers | grep -c ' 1/1 *Running ')" = "$1" ]; }
until_agents() {
	until_so "$2: there are not $1 agents" agents_ready $1 $3 && holds "$2: $1 of the nodes have an agent that is ready" && return
	kubectl get pods -n kube-system -o wide
	kubectl describe pods -n kube-system
	kubectl logs -n kube-system ds/${3:-plimsoll-agent}
	tail -n 30 /logs/containerd-1 /logs/kubelet-1
	exit 1
}
for number in 1 2 3; do web $number; done
until_limits 1 "$owners" "before"

# 1. Watch only.
kubectl apply -f /usr/local/bin/plimsoll-agent.yaml || fail "the manifest is refused"
kubectl label node node1 plimsoll.dev/agent=enabled >/dev/null
until_agents 1 "1 watch only"
agent=$(agent_on 1)
metrics() { wget -qO- "http://$(kubectl get pod -n kube-system "$agent" -o 'jsonpath={.status.podIP}'):9469/metrics"; }
names_pods() { metrics | grep '^container_cpu_usage_seconds_total' | grep 'namespace="shop"' | grep 'pod="web-1"' | grep -q 'container="web"'; }
until_so "no metric names namespace, pod and container: $(metrics | grep pod | head -3)" names_pods && holds "1 watch only: metrics name namespace, pod and container"
limits_are 1 "$owners" || fail "who only watches changed $(limits 1)"

# 2. Dry run.
cat >/rules.toml <<-'EOT'
	[[group]]
	cgroup = "/kubepods/**/pod*/*"
	burst_us = 20000
EOT
kubectl exec -i -n kube-system "$agent" -- plimsoll agent --dry-run --config /dev/stdin </rules.toml >/logs/dry 2>&1 || fail "a dry run ends with $?: $(tail -3 /logs/dry)"
would=$(grep -c 'cpu.max.burst would become `19999`, now `0`' /logs/dry)
if [ "$would" = 2 ]; then holds "2 dry run: $(tail -1 /logs/dry)"; else fail "a dry run says: $(cat /logs/dry)"; fi
limits_are 1 "$owners" || fail "a dry run changed $(limits 1)"

# 3. One node.
kubectl create configmap plimsoll-agent -n kube-system --from-file=agent.toml=/rules.toml --dry-run=client -o yaml | kubectl apply -f - >/dev/null 2>&1 ||
	fail "the ConfigMap is refused"
kubectl rollout restart -n kube-system ds/plimsoll-agent >/dev/null
until_limits 1 "30000 100000 19999" "3 one node"
until_agents 1 "3 one node"
agent=$(agent_on 1)
kubectl exec -n kube-system "$agent" -- plimsoll status | grep -q 'burst' || fail "status says: $(kubectl exec -n kube-system "$agent" -- plimsoll status)"
limits_are 2 "$owners" || fail "a node without an agent has $(limits 2)"
# Resizes of a running pod, as plan has them pasted, below the burst and above it.
resize() {
	kubectl patch pod -n shop web-1 --subresource resize --patch \
		"{\"spec\":{\"containers\":[{\"name\":\"web\",\"resources\":{\"requests\":{\"cpu\":\"$1\"},\"limits\":{\"cpu\":\"$1\"}}}]}}" >/dev/null ||
		fail "a resize to $1 is refused"
}
# A burst above the quota is lent: then cpu.max is the quota and what was saved.
has_quota() { for group in "$(pod_of 1)" "$(container_of 1)"; do
	read -r quota _ <"$group/cpu.max"; [ "$quota" -ge "$1" ] && [ "$quota" -le "$2" ] || return 1; done; }
resize 400m
until_limits 1 "40000 100000 19999" "3 a resize upwards"
# until_quota LEAST MOST WHAT: of pod and container, in us.
until_quota() {
	until_so "$3: web-1's quota is not $1 to $2" has_quota $1 $2 && holds "$3: web-1 has $(limits 1)" && return
	limits 1
	kubectl get pod -n shop web-1 -o 'jsonpath={.status.conditions}{.status.containerStatuses}{.spec.containers[0].resources}'
	kubectl logs -n kube-system "$(agent_on 1)"
	grep -i -e resiz -e web-1 -e cpu.max /logs/kubelet-1 | tail -n 20
	tail -n 10 /logs/containerd-1
}
resize 110m
until_quota 11000 31000 "3 a resize below the burst"
resize 300m
until_limits 1 "30000 100000 19999" "3 a resize back"
# An agent that is killed: the kubelet starts it again.
starts() { kubectl get pod -n kube-system "$agent" -o 'jsonpath={.status.containerStatuses[0].restartCount}'; }
kill -9 "$(cat $root/node1/kubepods/burstable/pod$(kubectl get pod -n kube-system "$agent" -o 'jsonpath={.metadata.uid}')/$(kubectl get pod -n kube-system "$agent" -o 'jsonpath={.status.containerStatuses[0].containerID}' | sed 's,.*//,,')/cgroup.procs)"
started_again() { [ "$(starts)" = 1 ]; }
until_so "the agent is not started again" started_again
until_agents 1 "3 killed with -9"
until_limits 1 "30000 100000 19999" "3 killed with -9"

# 4. Ten percent: one more of these three. 5. All.
kubectl label node node2 plimsoll.dev/agent=enabled >/dev/null
until_agents 2 "4 ten percent"
until_limits 2 "30000 100000 19999" "4 ten percent"
limits_are 3 "$owners" || fail "a node without the label has $(limits 3)"
kubectl label node node2 plimsoll.dev/agent- >/dev/null
until_limits 2 "$owners" "4 and its undoing"
kubectl label node --all --overwrite plimsoll.dev/agent=enabled >/dev/null
until_agents 3 "5 all"
for number in 1 2 3; do until_limits $number "30000 100000 19999" "5 all"; done

# 6. Back.
kubectl delete -f /usr/local/bin/plimsoll-agent.yaml >/dev/null
for number in 1 2 3; do until_limits $number "$owners" "6 back"; done
kubectl label node --all plimsoll.dev/agent- >/dev/null

# What a namespace under Pod Security does with it.
kubectl create namespace strict >/dev/null
kubectl label namespace strict pod-security.kubernetes.io/enforce=baseline >/dev/null
sed 's/namespace: kube-system/namespace: strict/' /usr/local/bin/plimsoll-agent.yaml | kubectl apply -f - 2>&1 | grep -q 'would violate PodSecurity "baseline:latest": hostPath volumes' &&
	holds "a namespace that enforces baseline refuses the DaemonSet's pods, for hostPath" || fail "Pod Security says nothing of hostPath"
kubectl delete namespace strict --wait=false >/dev/null

# The chart: annotations of pods, and a canary on other nodes.
kubectl label node node1 plimsoll.dev/agent=enabled >/dev/null
kubectl label node node2 plimsoll.dev/agent=canary >/dev/null
chart=/usr/local/bin/plimsoll-chart.tgz
helm install plimsoll $chart -n kube-system --set nri.enabled=true >/dev/null || fail "helm install ends with $?"
helm install canary $chart -n kube-system --set name=plimsoll-canary --set 'nodeSelector.plimsoll\.dev/agent=canary' \
	--set-file config=/rules.toml >/dev/null || fail "helm install of a canary ends with $?"
until_agents 1 "the chart"
until_agents 1 "the chart's canary" plimsoll-canary
until_limits 2 "30000 100000 19999" "the chart's canary"
kubectl delete pod -n shop web-1 >/dev/null
web 1 'plimsoll.dev/burst-us: "25000"'
until_limits 1 "30000 100000 24999" "an annotated pod"
said() { [ "$(first 1)" = "30000 100000 24999 " ]; }
until_so "the annotated pod began with $(first 1)" said && holds "an annotated pod begins with its burst: $(first 1)"
resize 110m
until_quota 11000 36000 "an annotated pod is resized below its burst"
resize 300m
until_limits 1 "30000 100000 24999" "an annotated pod is resized back"
helm upgrade plimsoll $chart -n kube-system --reuse-values --set nri.enabled=false >/dev/null || fail "helm upgrade ends with $?"
until_limits 1 "$owners" "annotations switched off"
helm uninstall plimsoll canary -n kube-system >/dev/null || fail "helm uninstall ends with $?"
until_limits 2 "$owners" "the chart is gone"
for number in 1 2 3; do
	[ "$(find "$root/node$number" -name cpu.max.burst -exec cat {} + | sort -u)" = 0 ] || fail "a burst is left on node$number"
done
if [ $failed = 0 ]; then echo "all holds"; else for file in /logs/kubelet-1 /logs/controllers /logs/node-1; do echo "== $file"; tail -n 15 $file; done; exit 1; fi
