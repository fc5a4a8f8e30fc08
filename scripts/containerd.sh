#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Debian sid's containerd, this Debian's runc, Docker and Podman, and crictl, unpacked below target/containerd for `make test-containerd`.
# Nothing is installed, and no service begins.
# Exit: 0 they are there, 3 apt or go cannot fetch them.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=target/containerd
[ -x $folder/bin/crictl ] && [ -x $folder/bin/containerd ] && [ -x $folder/bin/runc ] && [ -x $folder/bin/dockerd ] && [ -x $folder/bin/podman ] && exit 0
need() { echo "containerd.sh: $*; put containerd, containerd-shim-runc-v2, ctr, runc, docker, dockerd, podman, conmon and crictl into $folder/bin otherwise" >&2; exit 3; }
command -v apt-get >/dev/null || need "no apt-get here"
command -v go >/dev/null || need "crictl is not in Debian: go builds it, from 1.24 on"
new=$PWD/$folder.new
rm -rf "$new"
mkdir -p "$new"/{bin,lib,unpacked,lists/state/lists/partial,lists/cache/archives/partial}
# sid's package lists apart from the machine's own.
mirror=${PLIMSOLL_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m 1 '/debian/*$')} ||
	need "apt knows no mirror of Debian; PLIMSOLL_MIRROR names one"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $mirror sid main" >"$new/lists/sources.list"
: >"$new/lists/status"
sid() {
	apt-get -qq -o Dir::State="$new/lists/state" -o Dir::State::status="$new/lists/status" -o Dir::Cache="$new/lists/cache" \
		-o Dir::Etc::SourceList="$new/lists/sources.list" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User="$(id -un)" "$@"
}
(sid update && cd "$new" && sid download containerd) || need "$mirror does not give sid's containerd"
# Podman is linked to libraries that few machines have.
podman="podman conmon libdevmapper1.02.1 libgpgme11 libassuan0 libsubid4 libglib2.0-0"
# Of this Debian: sid's are for sid's C library.
(cd "$new" && apt-get -o APT::Sandbox::User="$(id -un)" -qq download runc docker.io $podman) || need "apt-get download runc docker.io $podman failed; apt-get update, as root, reads the package lists"
for package in "$new"/*.deb; do dpkg-deb -x "$package" "$new/unpacked"; done
mv "$new"/unpacked/usr/bin/{containerd,containerd-shim-runc-v2,ctr,docker,podman,conmon} "$new"/unpacked/usr/sbin/dockerd "$new/bin/"
find "$new/unpacked" -name 'lib*.so.*' -exec mv {} "$new/lib/" \;
mv "$(find "$new/unpacked" -name runc -type f -perm -1 | head -n 1)" "$new/bin/runc"
GOBIN=$new/bin CGO_ENABLED=0 go install sigs.k8s.io/cri-tools/cmd/crictl@v1.34.0 || need "go's module proxy does not give crictl"
rm -rf "$new"/*.deb "$new/unpacked" "$new/lists" $folder
mv "$new" $folder
