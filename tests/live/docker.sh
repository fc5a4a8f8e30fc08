#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `plimsoll agent --labels` beside a real Docker: see labels.sh. `make test-containerd` fetches what it needs and runs it.
# Exit: 0 all holds, 1 something does not.
. checks.sh
. labels.sh

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

runtime=Docker label=--label image=work
container() {
	name=$1; shift
	docker run -d --name "$name" --net none --cpu-quota 50000 --cpu-period 100000 "$@" work /bin/sleep 1000000 >/dev/null || fail "container $name does not start"
}
cgroup() { find $root/docker -name "$(docker inspect --format '{{.Id}}' "$1")*" -type d; }
resize() { docker update --cpu-quota "$2" "$1" >/dev/null; }
remove() { docker rm -f "$@" >/dev/null; }
labels_are_held
