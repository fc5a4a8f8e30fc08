#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make prometheus`: Debian's Prometheus, promtool and VictoriaMetrics, unpacked below target/prometheus. Nothing is installed, and no
# service begins, as it would with the packages.
# Exit: 0 they are there, 3 apt cannot fetch them.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=target/prometheus
[ -x $folder/usr/bin/promtool ] && [ -x $folder/usr/bin/victoria-metrics ] && exit 0
command -v apt-get >/dev/null || { echo "prometheus.sh: no apt-get here; put prometheus, promtool and victoria-metrics into $folder/usr/bin" >&2; exit 3; }
rm -rf $folder.new
mkdir -p $folder.new
fetch() { (cd $folder.new && apt-get download -qq prometheus victoria-metrics); }
# Without package lists, or with old ones, root reads them first.
fetch 2>/dev/null || { [ "$(id -u)" = 0 ] && apt-get update -qq && fetch; } ||
	{ echo "prometheus.sh: apt-get download prometheus victoria-metrics failed; apt-get update, as root, reads the package lists" >&2; exit 3; }
for package in $folder.new/*.deb; do
	dpkg-deb -x "$package" $folder.new
	rm "$package"
done
rm -rf $folder
mv $folder.new $folder
