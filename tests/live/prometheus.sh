#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A Prometheus beside `plimsoll agent --listen`, and then beside `plimsoll run --listen`: what is scraped, the alerts of
# packaging/prometheus, the selectors of kubernetes-mixin, and every query of the dashboard. Ten minutes of the guest's time.
#   make static guest prometheus
#   dist/plimsoll vm --timing --file target/guest/duty --file target/prometheus/usr/bin/prometheus \
#     --file target/prometheus/usr/bin/promtool --file packaging/prometheus/plimsoll.rules.yml \
#     --file packaging/grafana/plimsoll.json --file tests/live/prometheus.sh -- prometheus.sh
# Exit: 0 all holds, 1 something does not.
files=/usr/local/bin
root=/sys/fs/cgroup
failed=0
fail() { echo "FAILED: $*"; failed=1; }
query() { promtool query instant http://127.0.0.1:9090 "$1" 2>&1; }
# has QUERY WORD, hasnt QUERY WORD: whether a sample of the answer says it.
has() { query "$1" | grep -q -e "$2" || fail "nothing with $2: $1: $(query "$1")"; }
hasnt() { if query "$1" | grep -q -e "$2"; then fail "$2: $1: $(query "$1")"; fi; }
# Every query of the dashboard without the words $1, with variables filled in as Grafana would: all return data.
answered() {
	sed -n 's/^ *"expr": "\(.*\)",\{0,1\}$/\1/p' $files/plimsoll.json | sed 's/\\"/"/g; s/\$__rate_interval/1m/g; s/\$job/plimsoll/g' >queries
	while read -r expr; do
		if echo "$expr" | grep -q "$1"; then continue; fi
		answer=$(query "$expr")
		case $answer in
		*'=> '*) echo "answered: $expr" ;;
		*) fail "no data: $expr: $answer" ;;
		esac
	done <queries
}

# What a kubelet and containerd leave on a node.
pods=kubepods.slice/kubepods-burstable.slice
echo +cpu >$root/cgroup.subtree_control
mkdir -p $root/$pods $root/side
echo +cpu >$root/kubepods.slice/cgroup.subtree_control
echo +cpu >$root/$pods/cgroup.subtree_control
id() { printf "%064d" 0 | tr 0 "$1"; }
pod() { # LETTER NAME "QUOTA PERIOD"
	slice=$pods/kubepods-burstable-pod$1$1.slice
	group=$slice/cri-containerd-$(id "$1").scope
	mkdir $root/$slice
	echo +cpu >$root/$slice/cgroup.subtree_control
	mkdir $root/$group
	echo "$3" >$root/$group/cpu.max
	bundle=/run/containerd/io.containerd.runtime.v2.task/k8s.io/$(id "$1")
	mkdir -p "$bundle"
	cat >"$bundle/config.json" <<-EOF
		{"annotations": {"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": "$2",
		"io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-name": "$2-0",
		"io.kubernetes.cri.sandbox-uid": "$1$1", "io.kubernetes.cri.image-name": "example.org/$2:1"}}
	EOF
}
pod a hot "2000 100000"
hot=$group
pod b rare "20000 100000"
rare=$group
pod c burst "20000 100000"
plimsoll set $root/$group burst_us=50000 >/dev/null
plimsoll set $root/$slice headroom_percent=30 >/dev/null

cat >prometheus.yml <<EOF
global: { scrape_interval: 15s, evaluation_interval: 15s }
rule_files: [$files/plimsoll.rules.yml, mixin.yml]
scrape_configs:
  - job_name: plimsoll
    static_configs: [{ targets: ["127.0.0.1:9469"] }]
EOF
# What kubernetes-mixin asks of cAdvisor: the labels that it selects and sums by.
cat >mixin.yml <<'EOF'
groups:
  - name: mixin
    rules:
      - record: mixin:usage
        expr: sum by (namespace, pod, container) (irate(container_cpu_usage_seconds_total{job="plimsoll", image!=""}[5m]))
      - alert: ThrottledPeriods
        expr: >-
          sum(increase(container_cpu_cfs_throttled_periods_total{container!="", job="plimsoll"}[5m])) by (container, pod, namespace)
          / sum(increase(container_cpu_cfs_periods_total{container!="", job="plimsoll"}[5m])) by (container, pod, namespace) > 0.25
EOF
promtool check config prometheus.yml || fail "the rules are refused"

plimsoll agent --listen 9469 >log 2>&1 &
agent=$!
until wget -q -O- http://127.0.0.1:9469/readyz | grep -q ok; do sleep 0.1; done
wget -q -O- http://127.0.0.1:9469/healthz | grep -q ok || fail "healthz"
wget -q -O- http://127.0.0.1:9469/metrics >metrics
promtool check metrics <metrics
[ $? = 1 ] && fail "promtool cannot read the metrics"
if plimsoll run --listen 9469 2>taken; then fail "an address that is taken"; fi
grep "9469: Address" taken || fail "the address that is taken is not said"

sh -c "echo \$\$ >$root/$hot/cgroup.procs; while :; do :; done" &
hot=$!
# The interval is not a multiple of the period: the kernel draws where periods begin, and at some places 45 ms are throttled once only.
duty --duration-ms 600000 --group "$rare" --duty 1 --work-us 45000 --interval-us 5037000 --leave >/dev/null &
rare=$!
prometheus --config.file=prometheus.yml --storage.tsdb.path=/tmp/data --web.listen-address=127.0.0.1:9090 >prometheus.log 2>&1 &
prometheus=$!
firing='ALERTS{alertname="PlimsollThrottledTime",alertstate="firing"}'
for _ in $(seq 30); do
	sleep 30
	query "$firing" | grep -q hot && break
done
echo "after $(cut -d. -f1 /proc/uptime) s:"
query 'rate(container_cpu_cfs_throttled_seconds_total[5m])'
query 'ALERTS'
query 'mixin:usage'
has 'up{job="plimsoll"}' '=> 1 '
has "$firing" 'container="hot".*pod="hot-0"'
hasnt "$firing" rare
# By periods both are the same.
has 'ALERTS{alertname="ThrottledPeriods"}' hot
has 'ALERTS{alertname="ThrottledPeriods"}' rare
has 'mixin:usage' 'container="hot", namespace="shop", pod="hot-0"'
hasnt 'ALERTS{alertname="PlimsollNotEnforced"}' firing
# What only a scheduler counts.
answered 'schedstat\|steals\|merged'

kill $hot $agent
kill $rare 2>/dev/null
wait $agent
plimsoll run --listen 9469 >>log 2>&1 &
run=$!
until wget -q -O- http://127.0.0.1:9469/readyz | grep -q ok; do sleep 0.1; done
duty --duration-ms 75000 --group "$pods/kubepods-burstable-podcc.slice/cri-containerd-$(id c).scope" --duty 2 --work-us 15000 \
	--interval-us 200000 --leave >/dev/null
answered 'refused'
kill $run
wait $run
kill $prometheus
cat log
grep -i "error\|panic" prometheus.log && fail "Prometheus is not content"
exit $failed
