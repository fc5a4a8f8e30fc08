#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make thanos`: Thanos, built by go into target/thanos. Its module replaces others, so `go install` refuses it: its sources are
# copied and built there, with the tags of its own build: without them it crashes. That takes some ten minutes of CPU time the
# first time.
# Exit: 0 it is there, 3 go cannot fetch or build it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.42.0
folder=target/thanos
[ -x $folder/thanos ] && exit 0
need() { echo "thanos.sh: $*; put thanos into $folder otherwise" >&2; exit 3; }
command -v go >/dev/null || need "Thanos is not in Debian: go builds it, from 1.26 on"
new=$PWD/$folder.new
rm -rf "$new"
mkdir -p "$new"
module=$(cd "$new" && go mod download -json github.com/thanos-io/thanos@$version | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
[ -n "$module" ] || need "go's module proxy does not give Thanos $version"
cp -r "$module" "$new/source"
chmod -R u+w "$new/source"
(cd "$new/source" && CGO_ENABLED=0 go build -tags netgo,slicelabels -trimpath -ldflags '-s -w' -o "$new/thanos" ./cmd/thanos) || need "go did not build it"
rm -rf "$new/source" $folder
mv "$new" $folder
