#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make prometheus`: Debian's Prometheus and promtool, unpacked below target/prometheus. Nothing is installed, and no service
# begins, as it would with the package.
# Exit: 0 they are there, 3 apt cannot fetch them.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=target/prometheus
[ -x $folder/usr/bin/promtool ] && exit 0
command -v apt-get >/dev/null || { echo "prometheus.sh: no apt-get here; put prometheus and promtool into $folder/usr/bin" >&2; exit 3; }
rm -rf $folder.new
mkdir -p $folder.new
fetch() { (cd $folder.new && apt-get download -qq prometheus); }
# Without package lists, or with old ones, root reads them first.
fetch 2>/dev/null || { [ "$(id -u)" = 0 ] && apt-get update -qq && fetch; } ||
	{ echo "prometheus.sh: apt-get download prometheus failed; apt-get update, as root, reads the package lists" >&2; exit 3; }
dpkg-deb -x $folder.new/prometheus_*.deb $folder.new
rm $folder.new/prometheus_*.deb
rm -rf $folder
mv $folder.new $folder
