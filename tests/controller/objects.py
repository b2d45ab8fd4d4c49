"""Pods and Sandboxes as the API server would show them, made of what a test says of them."""

from __future__ import annotations

from typing import Any

import msgspec
from sandlot_kube.objects import Pod, Sandbox

NEVER = {"policy": "never"}  # the `reuse` of a pool whose pods end with their sandbox


def pod(*, node: str | None = "n1", **said: Any) -> Pod:
    body = {"metadata": {"name": "i-1"}, "spec": {"nodeName": node}, "status": said}
    return msgspec.convert(body, Pod)


def container(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


def sandbox(*, said: dict[str, Any] | None = None, **spec: Any) -> Sandbox:
    body = {
        "metadata": {"name": "i-1", "uid": "u", "generation": 2},
        "spec": {"template": {"image": "x"}, **spec},
        "status": said or {},
    }
    return msgspec.convert(body, Sandbox)


def is_ready(pod: Pod) -> bool:
    ready = pod.condition("Ready")
    return ready is not None and ready.status == "True"


def container_status(name: str, state: dict[str, Any]) -> dict[str, Any]:
    kept = {"restartCount": 0, "image": "x", "imageID": ""}
    return {"name": name, "state": state, "ready": "running" in state, **kept}
