"""A pod without a sandbox: two sleeping containers, whose use is subtracted from that of sandboxes' pods."""

from __future__ import annotations

from typing import Any

from loadtests.load.kubelet import BARE
from tests.kubernetes.stack import IMAGE


def bare_pod(name: str, *, runtime: str) -> dict[str, Any]:
    """Return a pod of the test cluster's image with two sleeping containers."""
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": part, "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "infinity"]}
            for part in ("sidecar", "sandbox")
        ],
    }
    if runtime == "gvisor":
        spec["runtimeClassName"] = "gvisor"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": BARE}},
        "spec": spec,
    }
