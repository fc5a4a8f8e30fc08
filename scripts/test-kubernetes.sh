#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make test-kubernetes`: packaging/kubernetes against the API's own schemas (PyPI's kubernetes-validate ships them), strictly:
# a key that is not known is an error. It must also be refused after a typing error, or nothing was checked.
# Exit: 0 all holds, 1 something does not, 3 a tool is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=target/kubernetes
if ! [ -x $tool/bin/kubernetes-validate ]; then
	python3 -m venv $tool && $tool/bin/pip install --quiet kubernetes-validate==1.37.0 ||
		{ echo "test-kubernetes.sh: python3 with venv and pip is needed, and PyPI" >&2; exit 3; }
fi
manifest=packaging/kubernetes/plimsoll-agent.yaml
for version in 1.27 1.31 1.36; do
	$tool/bin/kubernetes-validate --strict --quiet -k $version $manifest
done
wrong=$(mktemp --suffix=.yaml)
trap 'rm -f "$wrong"' EXIT
for word in readOnlyRootFilesystem hostPath httpGet; do
	sed "s/$word/${word}s/" $manifest >"$wrong"
	if $tool/bin/kubernetes-validate --strict -k 1.36 "$wrong" >/dev/null 2>&1; then
		echo "test-kubernetes.sh: ${word}s was taken" >&2
		exit 1
	fi
done
echo "holds   $manifest, for Kubernetes 1.27, 1.31 and 1.36"
