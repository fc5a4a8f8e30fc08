#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs the services that `make verify-plan` runs (Debian's packages, none of them started), then runs it.
# verify-plan.sh [tools|services] [OPTION...]: `tools` are the servers and clients that Debian has (verify_plan.py), `services`
# our own, asked at a constant rate (verify_services.py); without either both are run, without options.
# Exit: that of what is run, the first that is not 0; 3 where a package is missing that cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v python3 >/dev/null || { [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq python3 >/dev/null; } ||
	{ echo "verify-plan: python3 is missing" >&2; exit 3; }
missing=()
case "${1:-}" in
tools) programs=(verify_plan) && shift ;;
services) programs=(verify_services) && shift ;;
"") programs=(verify_plan verify_services) ;;
*) echo "verify-plan: tools or services first, not $1" >&2; exit 2 ;;
esac
for package in $(for program in "${programs[@]}"; do python3 bench/"$program".py "$@" --packages; done); do
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
	[ "$(id -u)" = 0 ] || { echo "verify-plan: please install ${missing[*]}" >&2; exit 3; }
	export DEBIAN_FRONTEND=noninteractive
	# No service is to start, and no database cluster to be made, because a package was installed.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod +x $policy
		trap 'rm -f $policy' EXIT
	fi
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
		{ echo "verify-plan: apt-get could not install ${missing[*]}" >&2; exit 3; }
fi
# What was built for release is what is checked, unless another binary is named.
case " $* " in *" --plimsoll"*) ;; *) cargo build -q --release -p plimsoll ;; esac
failed=0
for program in "${programs[@]}"; do
	python3 bench/"$program".py "$@" || { code=$?; [ $failed -ne 0 ] || failed=$code; }
done
exit $failed
