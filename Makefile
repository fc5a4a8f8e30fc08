# SPDX-License-Identifier: Apache-2.0 OR MIT
# Entry points. `make help` lists them; a target is here only when it does something.
SHELL := /bin/bash
# rustup's toolchain counts even when the shell does not know it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

TARGET := x86_64-unknown-linux-gnu
C_FILES = $(shell git ls-files '*.c' '*.h' ':!:*vmlinux.h')

.DEFAULT_GOAL := help
.PHONY: fuzz-readers publish-check docs install package test-package test-kubernetes test-slurm test-containerd test-rollout verify-plan deny help demo setup build test test-live test-live-all static static-arm64 fuzz bench fmt fmt-check lint clean guest prometheus thanos bench-live wheel test-wheel test-wheel-bare test-notebooks bench-wheel test-clusters

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## what each of the five systems does, simulated, then on a real kernel in QEMU; minutes, set-up included
	@scripts/setup.sh --build
	@$(MAKE) --no-print-directory static
	@echo
	@dist/plimsoll demo
	@scripts/demo-live.sh

setup: ## install what the build and the tests need (Debian, as root)
	@scripts/setup.sh

build: ## build the plimsoll binary, for this machine
	cargo build --release -p plimsoll

# Only these archives may be found by the linker when libbpf is linked statically: a folder that also holds
# Debian's libbpf.a would bring in that older library instead of the one the live crate builds.
STATIC_LIBS := target/static-libs

# linux_getrandom: a static binary would wait on /dev/random for others to bring randomness, which in a guest no device
# does; the system call makes the kernel gather it.
static: ## build dist/plimsoll, a static binary that runs in any guest
	@mkdir -p $(STATIC_LIBS) dist
	@for name in elf z zstd; do \
		archive=$$(gcc -print-file-name=lib$$name.a); \
		if [ -e "$$archive" ]; then ln -sf "$$archive" $(STATIC_LIBS)/; fi; \
	done
	LIBBPF_SYS_LIBRARY_PATH=$(abspath $(STATIC_LIBS)) \
		RUSTFLAGS='-C target-feature=+crt-static --cfg getrandom_backend="linux_getrandom"' \
		cargo build --release --target $(TARGET) -p plimsoll
	@cp target/$(TARGET)/release/plimsoll dist/plimsoll.new && mv dist/plimsoll.new dist/plimsoll
	@ls -l dist/plimsoll

# For everything but `run` and `record`, whose BPF programs are for x86-64. zlib's and zstd's archives are beside libelf's.
ARM64 := aarch64-unknown-linux-gnu
ARM64_FILES := $(abspath target/arm64/usr)
static-arm64: ## build dist/plimsoll-arm64, a static binary for ARM64, by Debian's cross compiler (all but run and record)
	@scripts/arm64.sh
	@mkdir -p dist
	LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu=$(ARM64_FILES)/lib/aarch64-linux-gnu \
		CFLAGS_aarch64_unknown_linux_gnu='-I$(ARM64_FILES)/include -I$(ARM64_FILES)/include/aarch64-linux-gnu' \
		CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS='-C target-feature=+crt-static' \
		cargo build --release --target $(ARM64) -p plimsoll
	@cp target/$(ARM64)/release/plimsoll dist/plimsoll-arm64.new && mv dist/plimsoll-arm64.new dist/plimsoll-arm64
	@ls -l dist/plimsoll-arm64

test: setup ## run every test but the slow suites (test-live, fuzz)
	scripts/test.sh

LIVE := scripts/with-clippy.sh cargo test -p plimsoll-vm --test robustness -- --ignored --test-threads=2
test-live: guest static prometheus ## run the tests that boot a real kernel in QEMU (over half an hour, the build included); ROBUST=WORD: only matching ones
	$(if $(ROBUST),,scripts/same-bytes.sh)
	$(if $(ROBUST),,scripts/with-clippy.sh cargo test -p plimsoll-screen --test all prometheus:: -- --ignored)
	$(if $(ROBUST),,scripts/with-clippy.sh cargo test -p plimsoll-vm --test boot --test network -- --ignored --test-threads=1)
	$(LIVE) $(or $(ROBUST),--skip older_too:: --skip next:: --skip next_too::)
	$(if $(ROBUST),,$(call ON_NEXT,next::))

# The series that is on its way is tested where Debian has a kernel of it whose BTF passes the probe; where not, that is said.
NEXT_KERNEL := $(shell sed -n 's,^const NEXT: &str = "\(.*\)";,\1,p' vm/tests/robustness.rs)
ON_NEXT = @dist/plimsoll vm --verbose --kernel $(NEXT_KERNEL) -- uname -r; code=$$?; \
	if [ $$code = 3 ]; then echo "Linux $(NEXT_KERNEL) is not tested: no sound kernel of it can be had (reasons above)"; \
	elif [ $$code != 0 ]; then exit $$code; else $(LIVE) $(1); fi

test-live-all: test-live ## the cases, too, that `make test-live` runs on the newest kernel alone, on the older and the next one (forty minutes more)
	$(LIVE) older_too::
	$(call ON_NEXT,next_too::)

fuzz: ## 10,000 random machines against the invariants; three broken policies must be caught (SEEDS=N FIRST=N)
	scripts/fuzz.sh $(SEEDS) $(FIRST)

fuzz-readers: ## cargo-fuzz on every reader of what others wrote, a minute each (SECONDS=N CORPUS="script nri": only these)
	scripts/fuzz-readers.sh $(or $(SECONDS),60) $(CORPUS)

bench: ## speed and memory of the simulator, beside SimSo; raw results go to bench/results/
	scripts/bench.sh

verify-plan: build ## record real services, predict them under limits, run them with the limits, compare (root)
	@bench/verify-plan.sh

GUEST_PROGRAMS := $(patsubst vm/guest/%.c,target/guest/%,$(wildcard vm/guest/*.c))

guest: $(GUEST_PROGRAMS) ## build the programs that measure inside a guest

target/guest/%: vm/guest/%.c $(wildcard vm/guest/*.h)
	@mkdir -p target/guest
	gcc -O2 -Wall -Wextra -Werror -static -pthread -o $@ $<

prometheus: ## unpack Debian's Prometheus and VictoriaMetrics below target, for the tests of metrics; nothing is installed
	@scripts/prometheus.sh

thanos: ## build Thanos below target, from Go's module proxy, for its test (minutes; not part of test-live)
	@scripts/thanos.sh

test-kubernetes: ## the DaemonSet and the Helm chart: lint, template, the API's schemas (PyPI; Helm is built by go if it is not there)
	@scripts/test-kubernetes.sh

test-slurm: static ## the array of packaging/sweep on a real Slurm in a root of Debian: a task is taken away, the same bytes (root, mmdebstrap)
	@scripts/test-slurm.sh

# PODS: how many come and go.
RUNTIME_FILES := $(foreach name,containerd containerd-shim-runc-v2 runc,--file target/containerd/bin/$(name)) --file tests/live/checks.sh
RUNTIME_GUEST := dist/plimsoll vm --kernel 6.12 --cpus 2 --memory 3G --timeout 10800
test-containerd: static ## the agent beside a real containerd (as its plugin), Docker and Podman, in guests: annotations, labels, resizes, kill -9 (PODS=20; needs go, for crictl)
	@scripts/containerd.sh
	$(RUNTIME_GUEST) $(RUNTIME_FILES) $(foreach name,ctr crictl,--file target/containerd/bin/$(name)) --file tests/live/containerd.sh -- containerd.sh $(or $(PODS),20)
	$(RUNTIME_GUEST) $(RUNTIME_FILES) $(foreach name,docker dockerd,--file target/containerd/bin/$(name)) $(foreach name,labels docker,--file tests/live/$(name).sh) -- docker.sh
	LD_LIBRARY_PATH=$(CURDIR)/target/containerd/lib $(RUNTIME_GUEST) --file target/containerd/bin/runc --file tests/live/checks.sh $(foreach name,podman conmon,--file target/containerd/bin/$(name)) $(foreach name,labels podman,--file tests/live/$(name).sh) -- podman.sh

test-rollout: package ## follow docs/src/how-to/roll-out.md in a real Kubernetes of three nodes, in a guest (needs go, which builds it: ten minutes, 4 GiB)
	@scripts/containerd.sh
	@scripts/kubernetes.sh
	@tar -C packaging/kubernetes --transform 's,^chart,plimsoll,' -czf target/kubernetes/plimsoll-chart.tgz chart
	dist/plimsoll vm --kernel 6.12 --cpus 2 --memory 8G --timeout 5400 --driver veth $(addprefix --file ,\
		$(addprefix /usr/bin/,openssl unshare mount umount) $(addprefix target/containerd/bin/,containerd containerd-shim-runc-v2 runc ctr) \
		$(addprefix target/kubernetes/bin/,etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl helm ptp host-local) \
		target/kubernetes/plimsoll-chart.tgz packaging/kubernetes/plimsoll-agent.yaml dist/packages/plimsoll-*-oci.tar \
		$(addprefix tests/live/,checks.sh kubernetes-node.sh rollout.sh)) -- rollout.sh

PREFIX ?= /usr/local
# A binary that is there already, such as dist/plimsoll; without it one is built for this machine.
BINARY ?= target/release/plimsoll
install: $(if $(filter target/release/plimsoll,$(BINARY)),build) ## install binary, manual, completions, units (PREFIX=/usr/local DESTDIR= BINARY=); nothing is started
	@scripts/install.sh "$(BINARY)" "$(DESTDIR)" "$(PREFIX)"

package: static ## deb, rpm, tarball and OCI image with checksums, into dist/packages
	@scripts/package.sh

test-package: package ## install the packages into clean roots of Debian, and try them there (root, mmdebstrap)
	@scripts/test-package.sh

wheel: ## build the Python package, into dist/wheels (maturin from PyPI)
	@scripts/wheel.sh build

# The tests run a wheel of less optimization: building the released one takes longer than all of them. The script builds what it tests.
test-wheel test-notebooks: export WHEEL_PROFILE ?= quick
test-wheel: ## try a quickly built wheel in fresh environments of the oldest and newest Python here (PyPI; WHEEL_PROFILE=release: the one of `make wheel`; PYTHONS="python3.9 ...")
	@scripts/wheel.sh test

test-wheel-bare: ## import and run the wheel in roots of Debian with python3-minimal alone (root, mmdebstrap)
	@scripts/wheel.sh bare

bench-wheel: $(if $(filter target/release/plimsoll,$(BINARY)),build) ## CPU time of 1,000 simulations in one process of Python, beside plimsoll sweep (BINARY=)
	@scripts/wheel.sh bench $(BINARY)

test-notebooks: ## run the notebooks of docs/notebooks with that wheel (PyPI; WHEEL_PROFILE=release)
	@scripts/wheel.sh notebooks

test-clusters: ## sweep on local clusters of Ray and Dask with two workers each: the same bytes, a killed worker, overhead (PyPI; POINTS=10000)
	@scripts/wheel.sh clusters $(or $(POINTS),10000)

# BENCH_LIVE: more arguments, such as --scheduler plimsoll or --only quota
bench-live: guest static ## measure schedulers on a real kernel in virtual time; raw results in bench/results
	@mkdir -p bench/results
	cargo run --release -q -p plimsoll-bench-live -- --raw bench/results/live-$$(date -u +%Y-%m-%d-%H%M).jsonl $(BENCH_LIVE)

docs: ## build the book in docs/ with mdBook, into target/book (installed by cargo when it is missing)
	@command -v mdbook > /dev/null || cargo install --locked mdbook --version 0.4.52
	mdbook build docs

fmt: ## format Rust and C
	cargo fmt --all
	clang-format-19 -i $(C_FILES)

lint: fmt-check ## check formatting, and every warning of clippy
	cargo clippy --workspace --all-targets -- -D warnings

fmt-check: ## check formatting
	cargo fmt --all --check
	@[ -n "$(C_FILES)" ] || { echo "fmt-check: git lists no C file: is git there, and this a clone?" >&2; exit 3; }
	clang-format-19 --dry-run -Werror $(C_FILES)

# Of crates.io; building it takes minutes, so `make test` holds the same list of licences by a test of its own.
DENY := 0.20.2
deny: ## check licences, sources and duplicates of all dependencies with cargo-deny, which is installed if it is not there
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny --version $(DENY)
	cargo deny --all-features check licenses bans sources

publish-check: ## what crates.io would be given of the crates that are useful by themselves: a dry run, each built from its package
	cargo publish --dry-run --locked -p plimsoll-cpus -p plimsoll-policy-sys -p plimsoll-sim -p plimsoll-trace

clean: ## remove everything built here
	cargo clean
	rm -rf dist
