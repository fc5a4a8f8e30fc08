#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make package`: deb, rpm, tarball and OCI image of dist/plimsoll into dist/packages, with checksums. The same commit gives
# the same bytes. dpkg-deb, rpmbuild and tar write them: what cargo-deb and cargo-generate-rpm would add to that is read
# from Cargo.toml, and takes minutes to build. The image needs no daemon: a layer and a few JSON files. Where
# dist/plimsoll-arm64 is there (`make static-arm64`), tarball and image are for ARM64, too.
# Exit: 0 done, 3 a tool is missing, or the two binaries are of different commits.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in dpkg-deb rpmbuild; do
	command -v $tool >/dev/null || { echo "package.sh: no $tool; on Debian: apt-get install dpkg rpm" >&2; exit 3; }
done
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
# Of the commit; of the changelog where there is no git.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
out=$PWD/dist/packages work=$PWD/target/package
rm -rf "$out" "$work"
mkdir -p "$out" "$work"

# pack FILE FOLDER NAME...: a tar that depends on nothing but what is in it.
pack() {
	local file=$1 folder=$2
	shift 2
	tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -C "$folder" -cf "$file" "$@"
}

strip --strip-debug -o "$work/plimsoll" dist/plimsoll
revision=$(dist/plimsoll --version | sed -n 's/.*(\(.*\))/\1/p')
arm64=
if [ -e dist/plimsoll-arm64 ]; then
	grep -aqF "$revision" dist/plimsoll-arm64 ||
		{ echo "package.sh: dist/plimsoll-arm64 is not of $revision: make static-arm64, or remove it" >&2; exit 3; }
	arm64=$work/plimsoll-arm64
	aarch64-linux-gnu-strip --strip-debug -o "$arm64" dist/plimsoll-arm64
fi
stage=$work/root
scripts/install.sh "$work/plimsoll" "$stage" /usr
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

deb=$work/deb
cp -a "$stage" "$deb"
# Debian's names for two of them.
mkdir -p "$deb/usr/share/zsh/vendor-completions" "$deb/DEBIAN"
mv "$deb/usr/share/zsh/site-functions/_plimsoll" "$deb/usr/share/zsh/vendor-completions"
rmdir "$deb/usr/share/zsh/site-functions"
mv "$deb/usr/share/doc/plimsoll/NOTICE" "$deb/usr/share/doc/plimsoll/copyright"
gzip -9n "$deb/usr/share/doc/plimsoll/CHANGELOG.md"
mv "$deb/usr/share/doc/plimsoll/CHANGELOG.md.gz" "$deb/usr/share/doc/plimsoll/changelog.gz"
sed "s/@VERSION@/$version/; s/@SIZE@/$(du -sk --apparent-size "$deb" | cut -f1)/" packaging/deb/control >"$deb/DEBIAN/control"
install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$deb/DEBIAN"
echo /etc/plimsoll/agent.toml >"$deb/DEBIAN/conffiles"
(cd "$deb" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group --build "$deb" "$out/plimsoll_${version}_amd64.deb" >/dev/null

rpmbuild -bb --quiet --target x86_64 --define "_topdir $work/rpm" --define "_rpmdir $out" --define "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm" \
	--define "package_version $version" --define "stage $stage" --define "_buildhost plimsoll" \
	--define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" packaging/rpm/plimsoll.spec

name=plimsoll-$version-x86_64-linux
mv "$stage" "$work/$name"
pack - "$work" "$name" | gzip -9n >"$out/$name.tar.gz"
if [ -n "$arm64" ]; then
	# What the binary says of itself, manual and completions, is the same.
	other=plimsoll-$version-aarch64-linux
	mv "$work/$name" "$work/$other"
	install -m 755 "$arm64" "$work/$other/usr/bin/plimsoll"
	pack - "$work" "$other" | gzip -9n >"$out/$other.tar.gz"
fi

image=$work/image
mkdir -p "$image/blobs/sha256"
# blob FILE: stored under its digest, which is printed with the size as a descriptor has them.
blob() {
	local digest
	digest=$(sha256sum "$1" | cut -d ' ' -f 1)
	cp "$1" "$image/blobs/sha256/$digest"
	echo "\"digest\":\"sha256:$digest\",\"size\":$(stat -c %s "$1")"
}
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
labels="{\"org.opencontainers.image.title\":\"plimsoll\",\"org.opencontainers.image.version\":\"$version\",\"org.opencontainers.image.revision\":\"$revision\",\"org.opencontainers.image.licenses\":\"Apache-2.0 OR MIT\"}"
# manifest ARCHITECTURE BINARY: stores the blobs of one architecture's image; prints what an index says of it, to be closed.
manifest() {
	local layer=$work/layer-$1 config=$work/config-$1.json manifest=$work/manifest-$1.json
	mkdir -p "$layer/usr/bin" "$layer/etc/plimsoll" "$layer/run" "$layer/tmp"
	cp "$2" "$layer/usr/bin/plimsoll"
	cp packaging/agent.toml "$layer/etc/plimsoll"
	pack "$layer.tar" "$layer" .
	gzip -9n <"$layer.tar" >"$layer.tar.gz"
	cat >"$config" <<EOF
{"created":"$created","architecture":"$1","os":"linux","config":{"User":"0:0","Env":["PATH=/usr/bin"],"Entrypoint":["/usr/bin/plimsoll"],"Cmd":["help"],"WorkingDir":"/","Labels":$labels},"rootfs":{"type":"layers","diff_ids":["sha256:$(sha256sum "$layer.tar" | cut -d ' ' -f 1)"]},"history":[{"created":"$created","created_by":"scripts/package.sh"}]}
EOF
	cat >"$manifest" <<EOF
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json",$(blob "$config")},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",$(blob "$layer.tar.gz")}],"annotations":$labels}
EOF
	echo "{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",$(blob "$manifest"),\"platform\":{\"architecture\":\"$1\",\"os\":\"linux\"}"
}
index() { # ENTRIES
	echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[$1]}"
}
# One image has the name itself; of two it is that of an index of both, out of which a runtime takes its own. The kubelet asks for
# plimsoll:VERSION by its whole name, and containerd keeps an image by the name that it was imported with.
named=",\"annotations\":{\"io.containerd.image.name\":\"docker.io/library/plimsoll:$version\",\"org.opencontainers.image.ref.name\":\"plimsoll:$version\"}"
entry=$(manifest amd64 "$work/plimsoll")
if [ -n "$arm64" ]; then
	index "$entry},$(manifest arm64 "$arm64")}" >"$work/both.json"
	entry="{\"mediaType\":\"application/vnd.oci.image.index.v1+json\",$(blob "$work/both.json")"
fi
index "$entry$named}" >"$image/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$image/oci-layout"
pack "$out/plimsoll-$version-oci.tar" "$image" blobs index.json oci-layout

(cd "$out" && sha256sum plimsoll* >SHA256SUMS && ls -l)
