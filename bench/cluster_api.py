# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A made-up Kubernetes API server on this machine that knows the StatefulSets of a fleet, for programs that ask a cluster what runs
before they ask Prometheus. It answers two lists with GET: StatefulSets, and autoscalers, of which there are none."""
import http.server, json, threading


class Cluster:
    """`stateful_sets`: (namespace, name) of each; each has one container, "app", without requests and limits."""

    def __init__(self, stateful_sets):
        lists = {
            "/apis/apps/v1/statefulsets": ("apps/v1", "StatefulSetList", [stateful_set(*one) for one in stateful_sets]),
            "/apis/autoscaling/v2/horizontalpodautoscalers": ("autoscaling/v2", "HorizontalPodAutoscalerList", []),
        }
        bodies = {path: json.dumps({"apiVersion": version, "kind": kind, "metadata": {}, "items": items}).encode()
                  for path, (version, kind, items) in lists.items()}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = bodies.get(self.path.split("?")[0])
                self.send_response(404 if body is None else 200)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(body or b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def kubeconfig(self):
        """As JSON, which is YAML."""
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "made-up",
            "clusters": [{"name": "made-up", "cluster": {"server": url}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "made-up", "context": {"cluster": "made-up", "user": "nobody"}}]})

    def stop(self):
        self.server.shutdown()


def stateful_set(namespace, name):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "resources": {}}]}}
    return {"metadata": {"namespace": namespace, "name": name},
            "spec": {"serviceName": name, "selector": {"matchLabels": labels}, "template": template}}
