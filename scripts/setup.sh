#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs what the build, the tests and `plimsoll vm` need, from Debian's own packages and nothing else.
# A second run finds everything in place, calls neither apt nor the network, and returns at once.
# Exit: 0 everything is there, 2 unknown argument, 3 something is missing that this user or system cannot install.
set -euo pipefail

# The oldest compiler that builds the workspace: `rust-version` in Cargo.toml.
rust_oldest=1.85

# package: why it is here
packages=(
	ca-certificates # cargo fetches crates over TLS
	git             # make lint: which C files there are
	gcc             # policy/ for the simulator, the guest programs
	libc6-dev       # also holds the static libc of `make static`
	make
	pkg-config
	clang-19        # the BPF scheduler
	llvm-19         # llvm-strip, for the BPF object
	clang-format-19 # make fmt, make lint
	libelf-dev      # libbpf
	zlib1g-dev      # libbpf
	qemu-system-x86 # plimsoll vm
	busybox-static  # user space of the guest
	xz-utils        # modules of the guest kernel
	zstd            # BTF of the guest kernel
	systemd         # the guest's service manager, where the unit is tested
)

# make lint needs more of Rust than the build does.
lint=yes
case "${1:-}" in
"") ;;
--build) # what `make demo` needs: no guest, no formatter
	lint=no
	kept=()
	for package in "${packages[@]}"; do
		case $package in
		qemu-system-x86 | busybox-static | xz-utils | zstd | systemd | clang-format-19 | git) ;;
		*) kept+=("$package") ;;
		esac
	done
	packages=("${kept[@]}")
	;;
--list)
	printf '%s\n' "${packages[@]}"
	exit 0
	;;
*)
	echo "setup.sh: unknown argument '$1'; allowed: none, --build for what the build alone needs, --list to print the packages" >&2
	exit 2
	;;
esac

# A toolchain that rustup put into the home directory counts, even when the shell does not know it yet.
PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# True when cargo and rustc are there and new enough, and with them what `make lint` runs.
rust_is_fine() {
	command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
	[ $lint = no ] || { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || return 1
	local have
	have=$(rustc --version 2>/dev/null | awk '{ print $2 }')
	[ -n "$have" ] && [ "$(printf '%s\n' "$rust_oldest" "$have" | sort -V | head -n 1)" = "$rust_oldest" ]
}

missing=()
if command -v dpkg-query >/dev/null; then
	for package in "${packages[@]}"; do
		[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
	done
else
	missing=("${packages[@]}")
fi
rust_missing=no
rust_is_fine || rust_missing=yes

if [ ${#missing[@]} -eq 0 ] && [ "$rust_missing" = no ]; then
	echo "setup: nothing to do ($(rustc --version), $(clang-19 --version | sed -n 's/.*version \([0-9.]*\).*/clang \1/p;q'))"
	exit 0
fi

# Says what to install by hand, and stops.
give_up() {
	echo "setup: $1. Please install:" >&2
	[ ${#missing[@]} -eq 0 ] || echo "  Debian packages (or what your system calls them): ${missing[*]}" >&2
	[ "$rust_missing" = no ] || echo "  Rust $rust_oldest or newer (cargo, rustc, rustfmt, clippy); on Debian 12: rustc-web cargo-web rustfmt-web rust-web-clippy" >&2
	exit 3
}

command -v apt-get >/dev/null || give_up "this is not a Debian system (no apt-get)"
[ "$(id -u)" = 0 ] || give_up "only root can install packages"

export DEBIAN_FRONTEND=noninteractive
echo "setup: reading the package lists"
apt-get update -qq || give_up "apt-get update failed"

# The version apt would install of a package, or nothing.
candidate() {
	apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)" { print $2 }'
}

if [ "$rust_missing" = yes ]; then
	# Debian 12's own rustc is 1.63; the -web packages are the current compiler, kept up for browsers.
	# Debian 13 and later have a new enough rustc under its plain name.
	if [ -n "$(candidate rustc-web)" ]; then
		rust_packages=(rustc-web cargo-web)
		[ $lint = no ] || rust_packages+=(rustfmt-web rust-web-clippy)
	else
		rust_packages=(rustc cargo)
		[ $lint = no ] || rust_packages+=(rustfmt rust-clippy)
	fi
	echo "setup: no Rust of $rust_oldest or newer found, or not all of it; installing ${rust_packages[*]} $(candidate "${rust_packages[0]}")"
	missing+=("${rust_packages[@]}")
fi

unavailable=()
for package in "${missing[@]}"; do
	[ -n "$(candidate "$package")" ] || unavailable+=("$package")
done
if [ ${#unavailable[@]} -gt 0 ]; then
	missing=("${unavailable[@]}")
	give_up "apt offers no ${unavailable[*]}"
fi

echo "setup: installing ${missing[*]}"
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || give_up "apt-get install failed"
hash -r
if [ "$rust_missing" = yes ] && ! rust_is_fine; then
	missing=()
	give_up "Rust is still older than $rust_oldest, or not all there"
fi
echo "setup: done"
