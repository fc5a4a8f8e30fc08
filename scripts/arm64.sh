#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What `make static-arm64` links beside Debian's cross compiler: libelf, zlib and zstd of Debian's arm64, unpacked below
# target/arm64. Nothing is installed, and apt's own lists stay as they are.
# Exit: 0 they are there, 3 a tool is missing or apt cannot fetch them.
set -euo pipefail
cd "$(dirname "$0")/.."
give_up() { echo "arm64.sh: $1" >&2; exit 3; }
command -v aarch64-linux-gnu-gcc >/dev/null || give_up "no aarch64-linux-gnu-gcc; on Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
[ -d "$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-linux-gnu" ] ||
	give_up "Rust has no aarch64-unknown-linux-gnu; rustup target add aarch64-unknown-linux-gnu"
folder=$PWD/target/arm64
[ -d "$folder/usr" ] && exit 0
command -v apt-get >/dev/null || give_up "no apt-get here; put libelf.a, libz.a and libzstd.a of arm64 into $folder/usr/lib/aarch64-linux-gnu"
rm -rf "$folder.new"
mkdir -p "$folder.new/lists/partial" "$folder.new/cache/archives/partial"
touch "$folder.new/status"
options=(-qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::State::Lists=$folder.new/lists"
	-o "Dir::State::status=$folder.new/status" -o "Dir::Cache=$folder.new/cache" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update || give_up "apt-get update for arm64 failed"
(cd "$folder.new" && apt-get "${options[@]}" download libelf-dev zlib1g-dev libzstd-dev) || give_up "apt-get download failed"
for file in "$folder.new"/*.deb; do dpkg-deb -x "$file" "$folder.new"; done
rm -rf "$folder.new"/{lists,cache,status,*.deb} "$folder"
mv "$folder.new" "$folder"
