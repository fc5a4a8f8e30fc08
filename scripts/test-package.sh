#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make test-package [SUITES="bookworm trixie"]`: the deb in clean roots of Debian: installed, run, its units checked by that
# Debian's systemd, removed; the rpm in a root that holds a shell, an rpm database and nothing of Debian's; the rpm's and
# the tarball's files; the image's digests, and its binary alone in a root. ARM64's under qemu-user-static, where it is there.
# Exit: 0 all holds, 1 something does not, 3 a tool is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in mmdebstrap rpm rpmbuild busybox; do
	command -v $tool >/dev/null || { echo "test-package.sh: no $tool; on Debian: apt-get install mmdebstrap rpm busybox-static" >&2; exit 3; }
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
# readme ROOT: what the README says, there. Its trace and scenario are copied from the repository.
readme() {
	local root=$1 inside=(chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root)
	cp scenarios/burst.toml docs/src/how-to/web.trace "$root/"
	check "$("${inside[@]}" plimsoll --version)" "${inside[@]}" plimsoll --version
	check "plimsoll demo" "${inside[@]}" plimsoll demo
	check "plimsoll simulate burst.toml" "${inside[@]}" plimsoll simulate burst.toml
	check "plimsoll simulate burst.toml --set group.bench.burst_us=0" "${inside[@]}" plimsoll simulate burst.toml --set group.bench.burst_us=0
	check "plimsoll plan web.trace" "${inside[@]}" plimsoll plan web.trace --goal 'p99(request) < 50ms'
	check "plimsoll --licences" "${inside[@]}" plimsoll --licences
	check "plimsoll agent --dry-run: the example configuration is taken" sh -c 'chroot "$1" plimsoll agent --dry-run --config /etc/plimsoll/agent.toml 2>&1 | tee /dev/stderr | grep -q "no cgroup v2"' sh "$root"
}
(cd "$packages" && check "checksums" sha256sum --quiet -c SHA256SUMS)

for suite in ${SUITES:-bookworm trixie}; do
	root=$work/$suite
	mmdebstrap --quiet --variant=minbase --include=systemd "$suite" "$root"
	cp "$packages"/plimsoll_*.deb "$root/plimsoll.deb"
	in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
	echo "== Debian $suite"
	check "the package installs" in_root dpkg -i plimsoll.deb
	check "no file differs from its checksum" in_root dpkg --verify plimsoll
	readme "$root"
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

rpms=("$packages"/plimsoll-*.rpm)
echo "== rpm, installed by rpm $(rpm --version | sed 's/.* //') into a root with a shell alone"
root=$work/fedora
mkdir -p "$root" "$work/base"
# What the package's scripts ask for: /bin/sh, from a package, as rpm looks for it among packages.
cat >"$work/base.spec" <<EOF
Name: base
Version: 1
Release: 1
Summary: /bin/sh
License: GPL-2.0-only
AutoReqProv: no
Provides: /bin/sh
%global __os_install_post %{nil}
%description
A shell.
%install
mkdir -p %{buildroot}/usr/bin
cp $(command -v busybox) %{buildroot}/usr/bin/busybox
for name in sh env cat rm; do ln -s busybox %{buildroot}/usr/bin/\$name; done
ln -s usr/bin %{buildroot}/bin
%files
/usr/bin/*
/bin
EOF
check "a package with a shell is built" rpmbuild -bb --quiet --define "_topdir $work/base" --define "_rpmdir $work/base" --define "_rpmfilename base.rpm" "$work/base.spec"
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/bin HOME=/root "$@"; }
# Debian's rpm installs nothing unless it is told that Debian's packages are not meant.
rpm_root() { rpm --force-debian --root "$root" --dbpath /usr/lib/sysimage/rpm "$@"; }
check "the package with a shell installs" rpm_root -i "$work/base/base.rpm"
check "the package installs" rpm_root -i "${rpms[0]}"
check "no file differs from what the package says" rpm_root -V plimsoll
readme "$root"
check "manual pages, completions and units are there" test -s "$root/usr/share/man/man1/plimsoll-agent.1.gz" -a -s "$root/usr/share/bash-completion/completions/plimsoll" -a -s "$root/usr/lib/systemd/system/plimsoll-agent.service"
echo "# the administrator's" >>"$root/etc/plimsoll/agent.toml"
check "installed again, a changed configuration stays" sh -c 'rpm --force-debian --root "$1" --dbpath /usr/lib/sysimage/rpm -U --replacepkgs "$2" && tail -n 1 "$1/etc/plimsoll/agent.toml" | grep -q administrator' sh "$root" "${rpms[0]}"
check "removed" rpm_root -e plimsoll
check "nothing is left but the configuration" sh -c '! find "$1/usr" "$1/etc" -path "*plimsoll*" ! -path "*/etc/plimsoll*" | grep .' sh "$root"
rm -rf "$root"

echo "== rpm, tarball, image"
check "the rpm's files are intact" rpm -K --nosignature "${rpms[0]}"
mkdir "$work/rpm" "$work/tar" "$work/image" "$work/run"
(cd "$work/rpm" && rpm2archive - <"${rpms[0]}" | tar -xz)
tar -C "$work/tar" -xf "$packages"/plimsoll-*-x86_64-linux.tar.gz
check "the rpm holds what the tarball holds" diff -r "$work/rpm" "$work"/tar/plimsoll-*
check "its configuration is kept on an upgrade" sh -c 'rpm -qp --configfiles "$1" | grep -qx /etc/plimsoll/agent.toml' sh "${rpms[0]}"
check "the tarball's binary runs" "$work"/tar/plimsoll-*/usr/bin/plimsoll --version
tar -C "$work/image" -xf "$packages"/plimsoll-*-oci.tar
check "every blob of the image has its digest for a name" sh -c 'cd "$1/blobs/sha256" && for blob in *; do echo "$blob  $blob"; done | sha256sum --quiet -c' sh "$work/image"
# Every descriptor of the index, the manifest and the configuration names a blob that is there.
check "and nothing is named that is not there" sh -c 'cd "$1" && grep -oh "\"digest\":\"sha256:[0-9a-f]*" index.json blobs/sha256/* 2>/dev/null | sed "s/.*://" | grep . | while read -r digest; do [ -s "blobs/sha256/$digest" ] || exit 1; done' sh "$work/image"
# layer_of ARCHITECTURE: the blob, from the configuration that names it to the manifest that names that.
layer_of() {
	local config
	config=$(cd "$work/image/blobs/sha256" && grep -l "\"architecture\":\"$1\",\"os\":\"linux\",\"config\"" ./* 2>/dev/null | head -n 1)
	grep -l "image.config.v1+json\",\"digest\":\"sha256:${config#./}" "$work"/image/blobs/sha256/* |
		xargs sed -n 's/.*layer.v1.tar+gzip","digest":"sha256:\([0-9a-f]*\).*/\1/p'
}
tar -C "$work/run" -xzf "$work/image/blobs/sha256/$(layer_of amd64)"
check "its binary runs where there is nothing else" chroot "$work/run" /usr/bin/plimsoll --version

arm64=("$packages"/plimsoll-*-aarch64-linux.tar.gz)
if [ ! -e "${arm64[0]}" ]; then
	echo "== ARM64: not packed; make static-arm64 builds it"
elif ! command -v qemu-aarch64-static >/dev/null; then
	echo "== ARM64: not run, no qemu-aarch64-static; on Debian: apt-get install qemu-user-static"
else
	echo "== ARM64, under $(qemu-aarch64-static --version | head -n 1)"
	tar -C "$work/tar" -xf "${arm64[0]}"
	mkdir "$work/arm64"
	tar -C "$work/arm64" -xzf "$work/image/blobs/sha256/$(layer_of arm64)"
	check "tarball and image hold the same binary" cmp "$work"/tar/plimsoll-*-aarch64-linux/usr/bin/plimsoll "$work/arm64/usr/bin/plimsoll"
	# The emulator goes into the root and is named, so that it does not depend on what the host has registered.
	cp "$(command -v qemu-aarch64-static)" "$work/arm64/"
	cp scenarios/burst.toml docs/src/how-to/web.trace "$work/arm64/"
	on_arm64() { chroot "$work/arm64" /qemu-aarch64-static /usr/bin/plimsoll "$@"; }
	refuses() { # TEXT COMMAND...: with code 3
		local text=$1 code=0
		shift
		"$@" >"$work/refused" 2>&1 || code=$?
		cat "$work/refused"
		[ $code = 3 ] && grep -q "$text" "$work/refused"
	}
	check "$(on_arm64 --version)" on_arm64 --version
	check "plimsoll simulate burst.toml" on_arm64 simulate burst.toml
	check "its result is, byte for byte, x86-64's" sh -c 'cd "$2" && "$1/usr/bin/plimsoll" simulate burst.toml --json >x86.json && chroot "$2" /qemu-aarch64-static /usr/bin/plimsoll simulate burst.toml --json >arm64.json && cmp x86.json arm64.json' sh "$work/run" "$work/arm64"
	check "plimsoll plan web.trace" on_arm64 plan web.trace --goal 'p99(request) < 50ms'
	check "plimsoll agent --dry-run: no cgroup v2 here" refuses "no cgroup v2" on_arm64 agent --dry-run --config /etc/plimsoll/agent.toml
	check "plimsoll run is refused" refuses "is for x86-64" on_arm64 run
	check "plimsoll record is refused" refuses "are for x86-64" on_arm64 record -o /tmp/new.trace
fi
exit $failed
