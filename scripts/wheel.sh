#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make wheel`: the Python package, into dist/wheels; `make test-wheel`: it in fresh environments of the oldest and newest
# Python there are. maturin and what the tests use come from PyPI.
# `make test-clusters`: its sweeps on Ray and Dask.
# `make test-notebooks`: the notebooks of docs/notebooks, run with it. `make test-wheel-bare`: it in roots of Debian that have
# python3-minimal and nothing else (root, mmdebstrap; SUITES). `make bench-wheel`: its CPU time beside the program's.
# wheel.sh build|test|clusters [POINTS]|notebooks|bare|bench BINARY
# WHEEL_PROFILE: of crates/python/Cargo.toml; `release`, into dist/wheels, where nothing is said, or what the Makefile says.
# PYTHONS="python3.9 ...": which ones, instead of those found
# Exit: 0 good, 1 a test failed, 3 something needed is not here.
set -euo pipefail
cd "$(dirname "$0")/.."
absent() { echo "wheel.sh: $1" >&2; exit 3; }

venv() { # venv FOLDER PYTHON PACKAGE...
	local folder=$1 python=$2
	shift 2
	rm -rf "$folder"
	"$python" -m venv "$folder" || absent "$python -m venv failed; python3-venv brings it"
	# Most of what is installed is never imported: none of it is compiled ahead.
	"$folder/bin/pip" install -q --no-compile --disable-pip-version-check "$@" || absent "pip could not install $*"
}

# Oldest and newest from 3.9 on, of the path and of pyenv.
pythons() {
	local minor python found=()
	for minor in $(seq 9 20); do
		for python in "$(command -v "python3.$minor" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python; do
			if [ -x "$python" ] && "$python" -c "import sys, venv; sys.exit(sys.version_info[:2] != (3, $minor))" 2>/dev/null; then
				found+=("$python")
				break
			fi
		done
	done
	[ ${#found[@]} -gt 0 ] || absent "no Python from 3.9 on"
	printf '%s\n' "${found[0]}" "${found[-1]}" | uniq
}

profile=${WHEEL_PROFILE:-release}
wheels=target/python/wheels-$profile
[ "$profile" != release ] || wheels=dist/wheels
# The wheel of this profile first, whatever another call built.
case ${1:-} in
test | clusters | notebooks | bare | bench) scripts/wheel.sh build ;;
esac
wheel=$(ls "$wheels"/plimsoll-*.whl 2>/dev/null || true)

case ${1:-} in
build)
	# Whatever may be part of it: a change of any of them, and only that, makes it anew.
	if [ -f "$wheel" ] && [ -z "$(find Cargo.toml NOTICE LICENSES crates machines policy scenarios scripts/wheel.sh -newer "$wheel" \
		-type f -not -name '*.pyc' -print -quit)" ]; then
		echo "$wheel is newer than all that it is made of"
		exit 0
	fi
	maturin=target/maturin/bin/maturin
	[ -x $maturin ] || venv target/maturin python3 'maturin>=1.9,<2'
	mkdir -p "$wheels"
	rm -f "$wheels"/plimsoll-*.whl
	CARGO_TARGET_DIR=$PWD/target/python $maturin build --profile "$profile" --locked --manifest-path crates/python/Cargo.toml \
		--out "$wheels" --compatibility linux
	ls -l "$wheels"
	;;
test)
	for python in ${PYTHONS:-$(pythons)}; do
		echo "== $("$python" --version)"
		folder=$(mktemp -d)
		trap 'rm -rf "$folder"' EXIT
		venv "$folder/venv" "$python" "$wheel" pytest pyarrow polars
		cp crates/python/tests/test_wheel.py docs/src/how-to/web.trace "$folder"
		(cd "$folder" && venv/bin/python -m pytest -q test_wheel.py)
		rm -rf "$folder"
	done
	;;
clusters)
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	venv "$folder/venv" "${PYTHON:-python3}" "$wheel" ray 'dask[distributed]'
	cp crates/python/tests/clusters.py "$folder"
	(cd "$folder" && venv/bin/python clusters.py "${2:-10000}")
	;;
notebooks)
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	venv "$folder/venv" "${PYTHON:-python3}" "$wheel" altair ipykernel nbclient polars
	"$folder/venv/bin/python" scripts/notebooks.py docs/notebooks
	;;
bare)
	command -v mmdebstrap >/dev/null || absent "no mmdebstrap; on Debian: apt-get install mmdebstrap"
	[ "$(id -u)" = 0 ] || absent "only root can enter a root"
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	for suite in ${SUITES:-bookworm trixie}; do
		root=$folder/$suite
		mmdebstrap --quiet --variant=minbase --include=python3-minimal "$suite" "$root"
		# There is no pip: a wheel is an archive.
		python3 -m zipfile -e "$wheel" "$root/usr/lib/python3/dist-packages"
		echo "== $suite: $(chroot "$root" /usr/bin/env -i python3 --version), $(chroot "$root" dpkg -l | grep -c '^ii') packages"
		chroot "$root" /usr/bin/env -i python3 -c "
import plimsoll
row = plimsoll.simulate('burst', seed=7).rows()[0]
print(plimsoll.__version__, row['seed'], row['groups.bench.stat.nr_throttled'])"
	done
	;;
bench)
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	venv "$folder/venv" "${PYTHON:-python3}" "$wheel"
	"$folder/venv/bin/python" crates/python/tests/cost.py "$2" 1000 3
	;;
*) echo "wheel.sh build|test|clusters [POINTS]|notebooks|bare|bench BINARY" >&2; exit 2 ;;
esac
