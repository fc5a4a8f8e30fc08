#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Installs the services that `make verify-plan` runs (Debian's packages, none of them started), then runs it.
# Exit: that of verify_plan.py; 3 where a package is missing that cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v python3 >/dev/null || { [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq python3 >/dev/null; } ||
	{ echo "verify-plan: python3 is missing" >&2; exit 3; }
missing=()
for package in $(python3 bench/verify_plan.py --packages); do
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
python3 bench/verify_plan.py "$@"
