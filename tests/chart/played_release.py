"""Plays the controllers and kubelets of a cluster for a release on an API server that has none: all is well in it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from tests.chart.programs import add_node
from tests.chart.release import Release

MERGE = "application/merge-patch+json"
POOL = {"pools": {"default": {"size": 2, "template": {"image": "python:3.12"}}}}
NODE = "played-worker"


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Played:
    def __init__(self, release: Release) -> None:
        self.release = release
        self.server = release.server
        self.others: list[str] = []  # namespaces

    def all_well(self) -> None:
        own, inside = self.release.namespace, self.release.sandboxes
        add_node(self.server, NODE)
        self.renew(NODE, "kube-node-lease", at=time.time())
        name = self.release.fullname
        self.renew(f"{name}-controller", own, at=time.time())
        for component in ("gateway", "controller"):
            counts = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
            path = f"/apis/apps/v1/namespaces/{own}/deployments/{name}-{component}/status"
            self.server.call("PATCH", path, {"status": counts}, content_type=MERGE)
            self.part(component)
        for service in (f"{name}-gateway", f"{name}-gateway-webhooks"):
            self.slice(own, service, "gateway-1")
        self.pod("i-1")
        self.slice(inside, "sandboxes", "i-1")
        self.pool_says("Filled", ready=2)

    def renew(self, name: str, namespace: str, *, at: float) -> None:
        """As its holder does: by a write of its own.

        For an hour: nobody renews it while a test runs the doctor many times, on a machine that may be busy.
        """
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        spec = {"holderIdentity": name, "renewTime": stamp(at), "leaseDurationSeconds": 3600}
        found = self.release.get(f"{path}/{name}")
        if found is None:
            self.server.call("POST", path, {"metadata": {"name": name}, "spec": spec})
        else:
            self.server.call("PUT", f"{path}/{name}", found | {"spec": spec})

    def slice(self, namespace: str, service: str, pod: str) -> None:
        target = {"kind": "Pod", "name": pod, "namespace": namespace}
        body: dict[str, Any] = {
            "metadata": {"name": f"{service}-x", "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": target, "conditions": {"ready": True}}],
        }
        self.server.call("POST", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", body)

    def part(self, component: str) -> None:
        """A running pod of gateway or controller, which nobody can connect to."""
        inside = f"/namespaces/{self.release.namespace}"
        deployment = f"/apis/apps/v1{inside}/deployments/{self.release.fullname}-{component}"
        template = self.server.call("GET", deployment)["spec"]["template"]
        metadata = {**template["metadata"], "name": f"{component}-1"}
        pods = f"/api/v1{inside}/pods"
        self.server.call("POST", pods, {"metadata": metadata, "spec": {**template["spec"], "nodeName": NODE}})
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.server.call("PATCH", f"{pods}/{component}-1/status", {"status": status}, content_type=MERGE)

    def pod(self, name: str, *, waits: tuple[str, str] | None = None) -> None:
        """A sandbox's pod on the node: running, or waiting for this reason and message."""
        labels = {
            "app.kubernetes.io/name": "sandlot",
            "app.kubernetes.io/component": "sandbox",
            "sandlot.dev/pool": "default",
        }
        path = f"/api/v1/namespaces/{self.release.sandboxes}/pods"
        spec = {
            "nodeName": NODE,
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "sandbox", "image": "python:3.12"},
                {"name": "sidecar", "image": "sidecar"},
            ],
        }
        self.server.call("POST", path, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        reason, message = waits or ("", "")
        state = {"waiting": {"reason": reason, "message": message}} if waits else {"running": {}}
        status = {
            "phase": "Pending" if waits else "Running",
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": str(waits is None)}],
            "containerStatuses": [
                {"name": "sandbox", "image": "python:3.12", "imageID": "", "ready": waits is None, "restartCount": 0, "state": state}
            ],
        }  # fmt: skip
        self.server.call("PATCH", f"{path}/{name}/status", {"status": status}, content_type=MERGE)

    def request(self, *, cpu: str) -> None:
        """A pod on the node that is none of the release's, in a namespace of its own."""
        self.others.append(self.server.namespace("others"))
        path = f"/api/v1/namespaces/{self.others[-1]}/pods"
        other = {"name": "other", "image": "other", "resources": {"requests": {"cpu": cpu}}}
        spec = {"nodeName": NODE, "automountServiceAccountToken": False, "containers": [other]}
        self.server.call("POST", path, {"metadata": {"name": "other"}, "spec": spec})

    def pool_says(self, reason: str, *, ready: int, message: str = "") -> None:
        path = f"/apis/sandlot.dev/v1alpha1/namespaces/{self.release.sandboxes}/sandboxpools/default"
        seen = self.server.call("GET", path)["metadata"]["generation"]
        full = {"type": "Ready", "status": str(ready == 2), "reason": reason, "message": message}
        status = {
            "size": 2,
            "ready": ready,
            "observedGeneration": seen,
            "message": message,
            "conditions": [full],
        }
        self.server.call("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)

    def clear(self) -> None:
        """What belongs to no namespace, and what no namespace controller takes away."""
        for path in (
            f"/api/v1/nodes/{NODE}",
            f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}",
        ):
            if self.release.get(path) is not None:
                self.server.call("DELETE", path)
        for namespace in (self.release.namespace, self.release.sandboxes, *self.others):
            pods = f"/api/v1/namespaces/{namespace}/pods"
            for pod in self.server.call("GET", pods)["items"]:
                self.server.call("DELETE", f"{pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def let_gateway_list_deployments(release: Release) -> None:
    """Give the gateway's account the one right without which the release cannot be found."""
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{release.namespace}"
    rules = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}]
    release.server.call("POST", f"{base}/roles", {"metadata": {"name": "look"}, "rules": rules})
    account = {
        "kind": "ServiceAccount",
        "name": f"{release.fullname}-gateway",
        "namespace": release.namespace,
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "look"}
    body = {"metadata": {"name": "look"}, "roleRef": role, "subjects": [account]}
    release.server.call("POST", f"{base}/rolebindings", body)
