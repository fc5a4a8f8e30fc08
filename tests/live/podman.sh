#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `plimsoll agent --labels` beside a real Podman, by annotations: see labels.sh. `make test-containerd` fetches what it needs and runs it.
# Exit: 0 all holds, 1 something does not.
. checks.sh
. labels.sh

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

runtime=Podman label=--annotation image=localhost/work:latest
container() {
	name=$1; shift
	podman run -d --name "$name" --network none --cpu-quota 50000 --cpu-period 100000 "$@" work /bin/sleep 1000000 >"/logs/$name" 2>&1 || fail "container $name does not start: $(cat "/logs/$name")"
}
# conmon has a cgroup of its own beside the container's.
cgroup() { find $root/libpod_parent -name "libpod-$(podman inspect --format '{{.Id}}' "$1")" -type d; }
resize() { podman update --cpu-quota "$2" "$1" >/dev/null; }
remove() { podman rm -f -t 0 "$@" >/dev/null; }
labels_are_held
