"""An installation with what operators, users and gateways make in a running one, for backups of it."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from sandlot_contract.names import (
    APP,
    LABEL_COMPONENT,
    LABEL_NAME,
    LABEL_USAGE_DAY,
    RUN_COMPONENT,
    USAGE_COMPONENT,
)
from sandlot_gateway.backends.kubernetes.usage_store import pack
from sandlot_gateway.core.runs import Lease, RunId
from sandlot_gateway.core.usage import Amounts, Document, Key, Totals, day_of

from tests.chart.release import Release

TENANT = "default"  # of `ask`
RUN = f"sandlot-run-{hashlib.sha256(f'{TENANT}/grpo-7'.encode()).hexdigest()[:32]}"
OURS = "/apis/sandlot.dev/v1alpha1"
NUMPY = {"template": {"image": "numpy:1"}, "size": 1, "owner": "training", "reuse": {"policy": "never"}}


def inside(release: Release, plural: str, base: str = OURS) -> str:
    return f"{base}/namespaces/{release.sandboxes}/{plural}"


def fill(release: Release) -> None:
    """What operators, users and gateways make in a running installation."""
    call = release.server.call
    call("POST", inside(release, "sandboxpools"), resource("SandboxPool", "numpy", NUMPY))
    warmup = {"tenant": "training", "images": [{"name": "numpy:1"}]}
    call("POST", inside(release, "imagewarmups"), resource("ImageWarmup", "warmup-1", warmup))
    sandbox = {"template": {"image": "numpy:1"}, "podName": "i-0123456789abcdef", "sandboxId": "sbx-1"}
    call("POST", inside(release, "sandboxes"), resource("Sandbox", "sbx-1", sandbox))
    totals, day = Totals(), day_of(time.time())
    totals.add(Key(int(time.time() // 3600), "training", "grpo-7"), Amounts(3, 60.0, 120.0, 60.0, 300.0, 0.0))
    sums = base64.b64encode(pack(Document().plus(totals, marks=[1]))).decode()
    labels = {LABEL_NAME: APP, LABEL_COMPONENT: USAGE_COMPONENT, LABEL_USAGE_DAY: str(day)}
    body = {
        "metadata": {"name": f"sandlot-usage-{day}-records", "labels": labels},
        "binaryData": {"sums": sums},
    }
    call("POST", inside(release, "configmaps", "/api/v1"), body)
    call("POST", inside(release, "configmaps", "/api/v1"), lease())
    call("POST", inside(release, "secrets", "/api/v1"), opaque_secret("pull"))


def lease() -> dict[str, Any]:
    """The lease of a run that nobody has renewed for long."""
    held = Lease(
        TENANT, RunId("grpo-7"), 3, 3, "n1:7", 86_400.0, created_at=1.0, began_at=1.0, renewed_at=1.0
    )
    labels = {LABEL_NAME: APP, LABEL_COMPONENT: RUN_COMPONENT}
    return {
        "metadata": {"name": RUN, "labels": labels},
        "data": {"lease": msgspec.json.encode(held).decode()},
    }


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "sandlot.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def opaque_secret(name: str, value: str = "old") -> dict[str, Any]:
    data = {"headers": base64.b64encode(value.encode()).decode()}
    return {"metadata": {"name": name}, "type": "Opaque", "data": data}


def forget(release: Release) -> None:
    """Delete what the namespace controller would, which does not run here."""
    for path in (
        inside(release, "sandboxpools"),
        inside(release, "imagewarmups"),
        inside(release, "sandboxes"),
        inside(release, "configmaps", "/api/v1"),
        inside(release, "secrets", "/api/v1"),
    ):
        release.server.call("DELETE", path)


@pytest.fixture
def filled(release: Release) -> Iterator[Release]:
    fill(release)
    try:
        yield release
    finally:
        forget(release)
