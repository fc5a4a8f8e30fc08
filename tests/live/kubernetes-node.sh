#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A node of the cluster of rollout.sh, in namespaces of its own: a containerd and a kubelet that see one group of the guest's as the
# whole hierarchy, and files of their own. $1: its number.
# Begun in that group, by unshare -C -m.
number=$1
mount --make-rshared /
# As the namespace sees it: the group that it was made in is the root.
umount /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/system
echo $$ >/sys/fs/cgroup/system/cgroup.procs
echo "+cpu +cpuset +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
for folder in /run /var/lib/containerd /var/lib/kubelet /var/log /etc/containerd /etc/cni/net.d; do
	mkdir -p "$folder"
	mount -t tmpfs tmpfs "$folder"
done
cat >/etc/cni/net.d/10-pods.conf <<-EOT
	{"cniVersion": "1.0.0", "name": "pods", "type": "ptp", "ipam": {"type": "host-local", "dataDir": "/run/cni",
	 "ranges": [[{"subnet": "10.88.$number.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}
EOT
# No pivot_root: the guest's root is the initramfs, which that refuses to leave.
cat >/etc/containerd/config.toml <<-'EOT'
	version = 3
	[plugins.'io.containerd.cri.v1.images']
	  snapshotter = "native"
	[plugins.'io.containerd.cri.v1.images'.pinned_images]
	  sandbox = "plimsoll.test/work:1"
	[plugins.'io.containerd.cri.v1.runtime']
	  disable_apparmor = true
	[plugins.'io.containerd.cri.v1.runtime'.cni]
	  bin_dirs = ["/opt/cni/bin"]
	  use_internal_loopback = true
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
	  runtime_type = "io.containerd.runc.v2"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
	  NoPivotRoot = true
	  SystemdCgroup = false
EOT
containerd >"/logs/containerd-$number" 2>&1 &
tries=0
until ctr version >/dev/null 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 600 ] || exit 1
	sleep 0.1
done
for image in /work.tar /usr/local/bin/plimsoll-*-oci.tar; do
	ctr -n k8s.io images import --snapshotter native --local "$image" || exit 1
done
# What a node of a real cluster has beyond this (evictions by disk, a swap) the initramfs cannot.
cat >/run/kubelet.yaml <<-EOT
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	port: 1025$number
	healthzPort: 1035$number
	authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
	authorization: {mode: AlwaysAllow}
	cgroupDriver: cgroupfs
	containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
	localStorageCapacityIsolation: false
	failSwapOn: false
	clusterDNS: [10.96.0.10]
	evictionHard: {memory.available: 10Mi}
	runtimeRequestTimeout: 10m
EOT
exec kubelet --config /run/kubelet.yaml --kubeconfig /admin.conf --hostname-override "node$number" --node-ip "10.99.0.$number" \
	>"/logs/kubelet-$number" 2>&1
