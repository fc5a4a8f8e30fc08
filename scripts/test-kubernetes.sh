#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make test-kubernetes`: packaging/kubernetes and packaging/sweep/job.yaml against the API's own schemas (PyPI's kubernetes-validate ships them), strictly:
# a key that is not known is an error. It must also be refused after a typing error, or nothing was checked. The chart by Helm's
# own lint and template: with its own values it is the plain YAML, key by key.
# Exit: 0 all holds, 1 something does not, 3 a tool is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=target/kubernetes
if ! [ -x $tool/bin/kubernetes-validate ]; then
	python3 -m venv $tool && $tool/bin/pip install --quiet kubernetes-validate==1.37.0 ||
		{ echo "test-kubernetes.sh: python3 with venv and pip is needed, and PyPI" >&2; exit 3; }
fi
helm=$(command -v helm || echo $tool/bin/helm)
if ! [ -x "$helm" ]; then
	GOBIN=$PWD/$tool/bin CGO_ENABLED=0 go install helm.sh/helm/v3/cmd/helm@v3.19.0 ||
		{ echo "test-kubernetes.sh: helm 3 is needed, or go 1.24 and its module proxy to build it" >&2; exit 3; }
fi
manifest=packaging/kubernetes/plimsoll-agent.yaml
chart=packaging/kubernetes/chart
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Helm that go built does not know which Kubernetes it is for.
rendered() { "$helm" template plimsoll $chart --namespace kube-system --kube-version 1.31 "$@"; }
valid() { # FILE
	for version in 1.27 1.31 1.36; do
		$tool/bin/kubernetes-validate --strict --quiet -k $version "$1"
	done
}

valid $manifest
for word in readOnlyRootFilesystem hostPath httpGet; do
	sed "s/$word/${word}s/" $manifest >"$folder/wrong.yaml"
	if $tool/bin/kubernetes-validate --strict -k 1.36 "$folder/wrong.yaml" >/dev/null 2>&1; then
		echo "test-kubernetes.sh: ${word}s was taken" >&2
		exit 1
	fi
done
echo "holds   $manifest, for Kubernetes 1.27, 1.31 and 1.36"
valid packaging/sweep/job.yaml
echo "holds   packaging/sweep/job.yaml, likewise"

"$helm" lint --strict --quiet --kube-version 1.31 $chart
rendered >"$folder/plain.yaml"
rendered --set nri.enabled=true --set-json 'seLinuxOptions={"type":"spc_t"}' --set image.pullPolicy=Always \
	--set-json 'image.pullSecrets=[{"name":"registry"}]' --set maxUnavailable=10% >"$folder/all.yaml"
valid "$folder/plain.yaml"
valid "$folder/all.yaml"
$tool/bin/python - $manifest "$folder/plain.yaml" "$folder/all.yaml" <<-'EOF'
	import sys, yaml
	plain, chart, more = ([document for document in yaml.safe_load_all(open(path)) if document] for path in sys.argv[1:])
	def differ(place, a, b):
	    if isinstance(a, dict) and isinstance(b, dict):
	        for key in sorted(a.keys() | b.keys()):
	            yield from differ(f"{place}.{key}", a.get(key), b.get(key))
	    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
	        for at, pair in enumerate(zip(a, b)):
	            yield from differ(f"{place}[{at}]", *pair)
	    elif a != b:
	        yield f"{place}: the manifest has {a!r}, the chart {b!r}"
	wrong = list(differ("", plain, chart))
	pod = more[1]["spec"]["template"]["spec"]
	agent = pod["containers"][0]
	if agent["args"][-2:] != ["--nri", "/var/run/nri/nri.sock"]:
	    wrong.append(f"with nri.enabled the arguments are {agent['args']}")
	if {"name": "nri", "mountPath": "/var/run/nri", "readOnly": True} not in agent["volumeMounts"]:
	    wrong.append("with nri.enabled the socket's folder is not mounted")
	if pod["volumes"][-1] != {"name": "nri", "hostPath": {"path": "/var/run/nri", "type": "Directory"}}:
	    wrong.append(f"with nri.enabled the last volume is {pod['volumes'][-1]}")
	print(*wrong, sep="\n", end="" if not wrong else "\n", file=sys.stderr)
	sys.exit(bool(wrong))
EOF
for wrong in port=80 nri.enabled=perhaps nir.enabled=true 'nodeSelector.a=1' name=Agent; do
	if rendered --set "$wrong" >/dev/null 2>&1; then
		echo "test-kubernetes.sh: the chart took $wrong" >&2
		exit 1
	fi
done
echo "holds   $chart: lint, template, schemas; with its own values it is $manifest; wrong values are refused"
