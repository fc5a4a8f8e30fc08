#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs a command in which cargo builds our own crates with clippy's compiler, and its warnings are errors. What is built to be
# tested is looked at on the way; `make lint`, which only looks, needs a second of all that is built. Not for what is to be
# fast or published: that compiler leaves out some optimizations.
# Usage: with-clippy.sh COMMAND ARGUMENTS... Exit: the command's.
set -euo pipefail
# The separator is what cargo-clippy and clippy-driver agree on.
exec env RUSTC_WORKSPACE_WRAPPER=clippy-driver \
	CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ "$@"
