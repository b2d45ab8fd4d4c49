"""Between the gateway's words and Kubernetes': templates, pools, and what an API server's refusal means."""

from __future__ import annotations

import re
from typing import Any

from sandlot_kube.errors import KubeError
from sandlot_kube.names import API_VERSION, APP, LABEL_NAME, POOL_KIND, SANDBOX_KIND
from sandlot_kube.objects import SandboxPool
from sandlot_kube.template import Template as KubeTemplate

from ..base import BackendError, PoolSpec, Template, Unavailable

_FIELD = re.compile(r"spec\.template\.(\w+)|(metadata\.name)|spec\.(size)")


def to_kube(template: Template) -> KubeTemplate:
    return KubeTemplate(**{name: getattr(template, name) for name in KubeTemplate.__struct_fields__})


def from_kube(template: KubeTemplate) -> Template:
    return Template(**{name: getattr(template, name) for name in KubeTemplate.__struct_fields__})


def every_field(template: Template) -> dict[str, Any]:
    """As a resource holds it, defaults too; None where there is nothing."""
    fields = zip(KubeTemplate.__struct_fields__, KubeTemplate.__struct_encode_fields__, strict=True)
    return {wire: getattr(template, name) for name, wire in fields}


def pool_spec(pool: SandboxPool) -> PoolSpec:
    """With autoscaling the size is what the controller wants now."""
    sizes = (pool.spec.size, pool.status.size, pool.spec.min_size, 0)
    size = next(size for size in sizes if size is not None)
    return PoolSpec(name=pool.metadata.name, template=from_kube(pool.spec.template), size=size)


def check_image(template: Template) -> None:
    """Raises BackendError."""
    if template.image == "host":
        raise BackendError(
            "the kubernetes backend has no image 'host': name a container image", field="image"
        )


def refusal(error: KubeError, *, retry_after: float) -> BackendError:
    """What a failed write means to whoever asked for it."""
    if error.status == 403 and "quota" in error.message:
        return Unavailable(f"the namespace's quota is used up: {error.message}", retry_after=retry_after)
    if error.status in (0, 401, 403, 408, 429) or error.status >= 500:
        wait = max(retry_after, error.retry_after or 0.0)
        return Unavailable(f"the API server takes nothing: {error}", retry_after=wait, refuse=True)
    found = _FIELD.search(error.message)
    field = next((group for group in found.groups() if group), None) if found else None
    name = "name" if field == "metadata.name" else field
    return BackendError(error.message or str(error), error_type="START_FAILED", field=name)


def sandbox_body(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _body(SANDBOX_KIND, name, spec)


def pool_body(spec: PoolSpec) -> dict[str, Any]:
    return _body(POOL_KIND, spec.name, {"template": to_kube(spec.template), "size": spec.size})


def _body(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {LABEL_NAME: APP}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
