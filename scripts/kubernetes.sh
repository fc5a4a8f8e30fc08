#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A Kubernetes for `make test-rollout`, built from Go's module proxy below target/kubernetes/bin: the API server, its etcd, the
# controllers, the scheduler, the kubelet, kubectl, Helm, and the plugins that give pods an address. Ten minutes on 2 cores, and
# 4 GiB of Go's caches.
# Exit: 0 they are there, 3 go cannot build them.
set -euo pipefail
cd "$(dirname "$0")/.."
version=34.2
bin=$PWD/target/kubernetes/bin
programs="etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl helm ptp host-local"
missing=
for program in $programs; do [ -x "$bin/$program" ] || missing+=" $program"; done
[ -n "$missing" ] || exit 0
need() { echo "kubernetes.sh: $*; put $programs into target/kubernetes/bin otherwise" >&2; exit 3; }
command -v go >/dev/null || need "go builds Kubernetes, from 1.24 on"
export CGO_ENABLED=0 GOFLAGS=-mod=mod
mkdir -p "$bin"
[ -x "$bin/helm" ] || GOBIN=$bin go install helm.sh/helm/v3/cmd/helm@v3.19.0 || need "go's module proxy does not give Helm"
plugins=github.com/containernetworking/plugins/plugins
GOBIN=$bin go install $plugins/main/ptp@v1.7.1 $plugins/ipam/host-local@v1.7.1 || need "go's module proxy does not give the network's plugins"

# Kubernetes' module takes its parts from folders beside it, which the proxy has as modules of their own.
source=target/kubernetes/source
rm -rf $source
mkdir -p $source
cd $source
files=$(go mod download -json "k8s.io/kubernetes@v1.$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p') || need "go's module proxy does not give Kubernetes"
{
	printf 'module plimsoll/kubernetes\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v1.%s\n' $version
	sed -n "s,^\t\(k8s.io/[a-z-]*\) => ./staging.*,replace \1 => \1 v0.$version,p" "$files"
} >go.mod
parts=
for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do parts+=" k8s.io/kubernetes/cmd/$program"; done
go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.$version" -o "$bin/" $parts &&
	go build -trimpath -ldflags "-s -w" -o "$bin/etcd" go.etcd.io/etcd/server/v3 || need "go does not build Kubernetes"
