"""Translates between the gateway's and Kubernetes' terms: templates, pools, requests and errors."""

from __future__ import annotations

import hashlib
import logging
import re
from typing import Any

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.images import is_image_name
from sandlot_contract.names import ANNOTATION_REQUEST, API_VERSION, APP, LABEL_NAME, POOL_KIND, SANDBOX_KIND
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import PoolReuse, Sandbox, SandboxPool
from sandlot_kube.template import Template as KubeTemplate

from ...core.backend import BackendError, Unavailable
from ...core.instances import PoolSpec, Reuse

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_FIELD = re.compile(r"spec\.template\.(\w+)|(metadata\.name)|spec\.(size|owner|reuse)")
_NAMES = {  # of the template's fields, by those that the API server's refusals have
    **dict(zip(KubeTemplate.__struct_encode_fields__, KubeTemplate.__struct_fields__, strict=True)),
    "metadata.name": "name",
}
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")


def to_kube(template: Template) -> KubeTemplate:
    return KubeTemplate(**{name: getattr(template, name) for name in KubeTemplate.__struct_fields__})


def from_kube(template: KubeTemplate) -> Template:
    return Template(**{name: getattr(template, name) for name in KubeTemplate.__struct_fields__})


def every_field(template: Template) -> dict[str, Any]:
    """Return all fields as in a resource, including defaults."""
    fields = zip(KubeTemplate.__struct_fields__, KubeTemplate.__struct_encode_fields__, strict=True)
    return {wire: getattr(template, name) for name, wire in fields}


def pool_spec(pool: SandboxPool) -> PoolSpec:
    """Convert a resource; with autoscaling the size is the controller's current target."""
    sizes = (pool.spec.size, pool.status.size, pool.spec.min_size, 0)
    size = next(size for size in sizes if size is not None)
    return PoolSpec(
        name=pool.metadata.name,
        template=from_kube(pool.spec.template),
        size=size,
        owner=pool.spec.owner,
        bounds=_bounds(pool.spec.min_size, pool.spec.max_size),
        reuse=_reuse(pool.spec.reuse),
    )


def _reuse(reuse: PoolReuse) -> Reuse:
    """Convert a policy; an unknown one, by a newer version, is none."""
    policy = ReusePolicy.TENANT if reuse.policy == ReusePolicy.TENANT else ReusePolicy.NEVER
    return Reuse(policy, max_uses=reuse.max_uses, max_age=reuse.max_age)


def _reuse_fields(reuse: Reuse) -> dict[str, Any]:
    return {"policy": reuse.policy, "maxUses": reuse.max_uses, "maxAge": int(reuse.max_age)}


def _bounds(least: int | None, most: int | None) -> tuple[int, int] | None:
    return None if least is None or most is None else (least, most)


def pool_change(old: PoolSpec, new: PoolSpec) -> dict[str, Any]:
    """Return the merge patch of `spec` that turns `old` into `new`; empty if they are equal."""
    change: dict[str, Any] = {}
    before, after = every_field(old.template), every_field(new.template)
    if template := {name: value for name, value in after.items() if value != before[name]}:
        change["template"] = template
    if new.owner != old.owner:
        change["owner"] = new.owner
    if new.reuse != old.reuse:
        change["reuse"] = _reuse_fields(new.reuse)
    # An autoscaled pool keeps its bounds until a size is set, which removes them.
    if new.bounds is None and (new.size != old.size or old.bounds is not None):
        change |= {"size": new.size, "minSize": None, "maxSize": None}
    return change


def check_image(template: Template) -> None:
    """Raise BackendError unless the image name is valid."""
    if template.image == "host":
        raise BackendError(
            "the kubernetes backend has no image 'host': name a container image", field="image"
        )
    # A node would reject it too, but only after the caller was answered PENDING.
    if not is_image_name(template.image):
        raise BackendError(
            f"invalid image reference {template.image!r}: write [HOST[:PORT]/]NAME[:TAG][@DIGEST]",
            error_type="IMAGE_INVALID",
            field="image",
        )


def check_gpu_type(template: Template) -> None:
    """Raise BackendError unless a node's label can have the type of GPU as its value."""
    if template.gpu_type is not None and not _LABEL_VALUE.match(template.gpu_type):
        raise BackendError(
            f"no node has GPUs of the type {template.gpu_type!r}: here it is the value of a node label, such as "
            "'NVIDIA-L4', with at most 63 letters, digits, '-', '_' and '.'; ask the operator for those of the "
            "nodes, or leave it out",
            field="gpu_type",
        )


def refusal(error: KubeError, *, retry_after: float) -> BackendError:
    """Map a failed write to the error that the caller gets."""
    if error.status == 403 and "quota" in error.message:
        return Unavailable(
            f"the namespace's quota is used up: {error.message}; delete sandboxes, or raise the quota",
            retry_after=retry_after,
        )
    if error.status in (0, 401, 403, 408, 429) or error.status >= 500:
        wait = max(retry_after, error.retry_after or 0.0)
        return Unavailable(
            f"the Kubernetes API server is rejecting writes: {error}; try again after Retry-After",
            retry_after=wait,
            refuse=True,
        )
    found = _FIELD.search(error.message)
    field = next((group for group in found.groups() if group), None) if found else None
    return BackendError(
        error.message or str(error), error_type="START_FAILED", field=_NAMES.get(field or "", field)
    )


def safe_name(sandbox_id: SandboxId) -> str:
    """Return the id itself if it is a valid resource name, else a name derived from it."""
    if _NAME.match(sandbox_id):
        return sandbox_id
    return "sb-" + hashlib.sha256(sandbox_id.encode()).hexdigest()[:20]


def record_key(instance_id: InstanceId, generation: int | None) -> str:
    """Return what tells records of a pod apart: its generation, if it runs one sandbox after the other."""
    return instance_id if generation is None else f"{instance_id} {generation}"


def sandbox_body(name: str, spec: dict[str, Any], *, request: dict[str, Any] | None = None) -> dict[str, Any]:
    """Build a Sandbox. `request`: the create request, stored so that every gateway can answer for the sandbox."""
    body = _body(SANDBOX_KIND, name, spec)
    if request:
        body["metadata"]["annotations"] = asked(request)
    return body


def asked(request: dict[str, Any]) -> dict[str, str]:
    """Return the annotation that stores the create request."""
    return {ANNOTATION_REQUEST: msgspec.json.encode(request).decode()}


def asked_for(sandbox: Sandbox) -> dict[str, Any] | None:
    """Return the stored create request, or None if it is missing or unreadable."""
    text = sandbox.metadata.annotations.get(ANNOTATION_REQUEST)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        name = sandbox.metadata.name
        _log.warning("what was asked for with Sandbox %s cannot be read: %s", name, error)
        return None


def pool_body(spec: PoolSpec) -> dict[str, Any]:
    resource: dict[str, Any] = {"template": to_kube(spec.template), "size": spec.size}
    if spec.owner is not None:
        resource["owner"] = spec.owner
    if spec.reuse != Reuse():
        resource["reuse"] = _reuse_fields(spec.reuse)
    return _body(POOL_KIND, spec.name, resource)


def _body(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {LABEL_NAME: APP}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
