#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make test-package [SUITES="bookworm trixie"]`: the deb in clean roots of Debian: installed, run, its units checked by that
# Debian's systemd, removed; the rpm's and the tarball's files; the image's digests, and its binary alone in a root.
# Exit: 0 all holds, 1 something does not, 3 a tool is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in mmdebstrap rpm; do
	command -v $tool >/dev/null || { echo "test-package.sh: no $tool; on Debian: apt-get install mmdebstrap rpm" >&2; exit 3; }
done
[ "$(id -u)" = 0 ] || { echo "test-package.sh: only root can enter the roots" >&2; exit 3; }
packages=$PWD/dist/packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
check() { # WHAT COMMAND...: its output is shown where it fails
	local what=$1
	shift
	if "$@" >"$work/said" 2>&1; then
		printf 'holds   %s\n' "$what"
	else
		failed=1
		printf 'MISSED  %s\n' "$what"
		tail -n 20 "$work/said"
	fi
}
(cd "$packages" && check "checksums" sha256sum --quiet -c SHA256SUMS)

for suite in ${SUITES:-bookworm trixie}; do
	root=$work/$suite
	mmdebstrap --quiet --variant=minbase --include=systemd "$suite" "$root"
	cp "$packages"/plimsoll_*.deb "$root/plimsoll.deb"
	cp scenarios/burst.toml "$root/"
	in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
	echo "== Debian $suite"
	check "the package installs" in_root dpkg -i plimsoll.deb
	check "no file differs from its checksum" in_root dpkg --verify plimsoll
	check "$(in_root plimsoll --version)" in_root plimsoll --version
	check "plimsoll demo" in_root plimsoll demo
	check "plimsoll simulate burst.toml" in_root plimsoll simulate burst.toml
	check "plimsoll --licences" in_root plimsoll --licences
	check "the example configuration is taken" sh -c 'chroot "$1" plimsoll agent --dry-run --config /etc/plimsoll/agent.toml 2>&1 | tee /dev/stderr | grep -q "no cgroup v2"' sh "$root"
	units=(plimsoll.service plimsoll-agent.service plimsoll-record.service plimsoll-record.timer)
	check "systemd-analyze verify of ${#units[@]} units" sh -c 'said=$(chroot "$@" 2>&1); echo "$said"; [ -z "$said" ]' sh "$root" systemd-analyze verify --man=no "${units[@]/#//usr/lib/systemd/system/}"
	for unit in plimsoll-agent.service:2.5 plimsoll.service:6.5 plimsoll-record.service:6.5; do
		# The score is ten times its number here.
		check "systemd-analyze security $unit or less: $(in_root systemd-analyze security --offline=yes "${unit%:*}" 2>&1 | sed -n 's/.*exposure level[^:]*: *//p')" \
			in_root systemd-analyze security --offline=yes --threshold="$(awk "BEGIN { print ${unit#*:} * 10 }")" "${unit%:*}"
	done
	check "manual pages and completions are there" in_root test -s /usr/share/man/man1/plimsoll-agent.1.gz -a -s /usr/share/bash-completion/completions/plimsoll
	echo "# the administrator's" >>"$root/etc/plimsoll/agent.toml"
	check "installed again, a changed configuration stays" sh -c 'chroot "$1" dpkg -i --force-confdef --force-confold plimsoll.deb && tail -n 1 "$1/etc/plimsoll/agent.toml" | grep -q administrator' sh "$root"
	check "removed" in_root dpkg -r plimsoll
	check "nothing is left but the configuration" sh -c '! find "$1/usr" "$1/etc" -path "*plimsoll*" ! -path "*/etc/plimsoll*" | grep .' sh "$root"
	rm -rf "$root"
done

echo "== rpm, tarball, image"
rpms=("$packages"/plimsoll-*.rpm)
check "the rpm's files are intact" rpm -K --nosignature "${rpms[0]}"
mkdir "$work/rpm" "$work/tar" "$work/image" "$work/run"
(cd "$work/rpm" && rpm2archive - <"${rpms[0]}" | tar -xz)
tar -C "$work/tar" -xf "$packages"/plimsoll-*-linux.tar.gz
check "the rpm holds what the tarball holds" diff -r "$work/rpm" "$work"/tar/plimsoll-*
check "its configuration is kept on an upgrade" sh -c 'rpm -qp --configfiles "$1" | grep -qx /etc/plimsoll/agent.toml' sh "${rpms[0]}"
check "the tarball's binary runs" "$work"/tar/plimsoll-*/usr/bin/plimsoll --version
tar -C "$work/image" -xf "$packages"/plimsoll-*-oci.tar
check "every blob of the image has its digest for a name" sh -c 'cd "$1/blobs/sha256" && for blob in *; do echo "$blob  $blob"; done | sha256sum --quiet -c' sh "$work/image"
# Every descriptor of the index, the manifest and the configuration names a blob that is there.
check "and nothing is named that is not there" sh -c 'cd "$1" && grep -oh "\"digest\":\"sha256:[0-9a-f]*" index.json blobs/sha256/* 2>/dev/null | sed "s/.*://" | grep . | while read -r digest; do [ -s "blobs/sha256/$digest" ] || exit 1; done' sh "$work/image"
layer=$(grep -lE -m 1 'image.layer' "$work"/image/blobs/sha256/* | xargs sed -n 's/.*layer.v1.tar+gzip","digest":"sha256:\([0-9a-f]*\).*/\1/p')
tar -C "$work/run" -xzf "$work/image/blobs/sha256/$layer"
check "its binary runs where there is nothing else" chroot "$work/run" /usr/bin/plimsoll --version
exit $failed
