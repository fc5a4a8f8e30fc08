#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make install`: install.sh BINARY DESTDIR PREFIX. Puts binary, manual, completions, units, example configuration, alerts
# and dashboard below DESTDIR. Enables and starts nothing; a configuration that is there stays.
# Exit: 0 done, 2 usage or a binary that does not run.
set -euo pipefail
[ $# = 3 ] || { echo "usage: install.sh BINARY DESTDIR PREFIX" >&2; exit 2; }
binary=$1 root=$2 prefix=$3
cd "$(dirname "$0")/.."
"$binary" --version >/dev/null || { echo "install.sh: $binary does not run" >&2; exit 2; }
case $prefix in /*) ;; *) echo "install.sh: PREFIX=$prefix: allowed are absolute paths" >&2; exit 2 ;; esac
share=$root$prefix/share units=$root$prefix/lib/systemd/system

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$binary" man "$made/man"
gzip -9n "$made"/man/*
for shell in bash zsh fish; do "$binary" completions $shell >"$made/$shell"; done

install -D -m 755 "$binary" "$root$prefix/bin/plimsoll"
install -d "$share/man/man1" "$units"
install -m 644 "$made"/man/* "$share/man/man1"
install -D -m 644 "$made/bash" "$share/bash-completion/completions/plimsoll"
install -D -m 644 "$made/zsh" "$share/zsh/site-functions/_plimsoll"
install -D -m 644 "$made/fish" "$share/fish/vendor_completions.d/plimsoll.fish"
for unit in packaging/*.service packaging/*.timer; do
	sed "s|/usr/bin/plimsoll|$prefix/bin/plimsoll|" "$unit" >"$made/unit"
	install -m 644 "$made/unit" "$units/${unit##*/}"
done
install -D -m 644 packaging/tmpfiles.conf "$root$prefix/lib/tmpfiles.d/plimsoll.conf"
install -D -m 644 packaging/prometheus/plimsoll.rules.yml "$share/plimsoll/prometheus/plimsoll.rules.yml"
install -D -m 644 packaging/grafana/plimsoll.json "$share/plimsoll/grafana/plimsoll.json"
for text in README.md CHANGELOG.md NOTICE; do install -D -m 644 $text "$share/doc/plimsoll/$text"; done
install -D -m 644 packaging/agent.toml "$share/doc/plimsoll/agent.toml"
[ -e "$root/etc/plimsoll/agent.toml" ] || install -D -m 644 packaging/agent.toml "$root/etc/plimsoll/agent.toml"
