"""Translates a create request into a Spec; rejects what is not available by the field's name."""

from __future__ import annotations

import math
import platform
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.fitting import Fit, Wanted, fit, missed
from sandlot_gateway.control.models import CreateRequest
from sandlot_gateway.control.start_commands import check_image_command, start_command, stop_signal
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.core.secret_refs import SecretRef
from sandlot_gateway.egress import BadTarget, Egress, canonical
from sandlot_gateway.sandboxes import Spec

_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_ECHOED = ("team_id", "advanced_configs", "arch")

# Fields that no sandbox here supports. Prime's clients leave them out, or send false or an empty value.
_NOT_HERE = {
    "guaranteed": "the operator decides for all sandboxes whether requests equal limits; leave it out",
    "registry_credentials_id": "the operator configures registry credentials; leave it out",
    "region": "this server has a single region; leave it out",
}


def spec_of(
    request: CreateRequest,
    *,
    pool: PoolSpec | None,
    pools: Iterable[PoolSpec],
    ready: Callable[[PoolSpec], int],
    checkpoint: Checkpoint | None = None,
    lays_images: bool = True,
    gpus_keep_image: bool = False,
    refusal: Callable[[str], str | None] = lambda image: None,
) -> Spec:
    """Translate a request with its pool and checkpoint; a pool of its image supplies the fields that it omits.

    `pools` are those that the caller may use, `ready` counts a pool's ready instances, `lays_images` and
    `gpus_keep_image` are the backend's, `refusal` says why the caller may not use an image. Raises ApiError 422.
    """
    _refuse_unsupported(request)
    _check_pool(request, pool)
    timeout, timeout_minutes = _timeout(request)
    command, kind = start_command(request.start_command)
    network = _network(request)
    image = request.docker_image or request.image or (pool.template.image if pool is not None else None)
    disk = request.disk_size_gb
    if checkpoint is not None:
        _refuse_beside_checkpoint(request)
        image, disk = checkpoint.docker_image, checkpoint.disk_size_bytes / (1 << 30)
    if image is None:
        raise ApiError(422, "docker_image: required without pool or checkpoint_id", field="docker_image")
    if not image:
        text = f"docker_image: required with pool {request.pool!r}, which has no image of its own"
        raise ApiError(422, text, field="docker_image")
    # A pool's template was checked when the pool was created.
    if pool is None or not pool.template.image:
        field = "checkpoint_id" if checkpoint else "docker_image" if request.docker_image else "image"
        check_image(image, field=field, refusal=refusal)
    if pool is not None and pool.template.image not in ("", image):
        raise ApiError(
            422,
            f"pool: {request.pool!r} has the image {pool.template.image!r}: leave out either docker_image or pool",
            field="pool",
        )
    if pool is not None:
        found = Fit(pool.template, missed(pool, ready=ready(pool)))
    else:
        wanted = Wanted(
            image,
            request.cpu_cores,
            request.memory_gb,
            disk,
            request.pids,
            request.gpu_count or 0,
            request.gpu_type or None,
        )
        found = fit(wanted, pools=pools, ready=ready)
    template = found.template
    gpu_count = template.gpu_count if template else request.gpu_count or 0
    if request.run_image_command:
        check_image_command(
            command, lays_images=lays_images, gpus_keep_image=bool(gpu_count) and gpus_keep_image
        )
    return Spec(
        name=request.name or f"sandbox-{secrets.token_hex(4)}",
        image=image,
        cpu_cores=template.cpu if template else _default(request.cpu_cores, 1.0),
        memory_gb=template.memory / (1 << 30) if template else _default(request.memory_gb, 1.0),
        disk_size_gb=template.disk / (1 << 30) if template else _default(disk, 5.0),
        pids=template.pids if template else request.pids,
        gpu_count=gpu_count,
        gpu_type=template.gpu_type if template else request.gpu_type or None,
        runtime_class=template.runtime_class if template else None,
        pool=request.pool,
        labels=request.labels or [],
        run=request.run,
        env=request.environment_vars or {},
        secret_names=sorted({*(request.secrets or ()), *(request.secret_refs or ())}),
        secret_refs=_secret_refs(request),
        start_command=command,
        start_kind=kind,
        run_image_command=bool(request.run_image_command),
        stop_signal=stop_signal(request.stop_signal),
        stop_grace=request.stop_grace_seconds,
        workdir=request.workdir,
        user=request.user,
        network=network,
        egress=_egress(request, network=network),
        timeout=timeout,
        timeout_minutes=timeout_minutes,
        idle_timeout=_idle_timeout(request, timeout),
        # Without a value the server decides; with a string start_command the client expects a container.
        vm=kind != "string" if request.vm is None else request.vm,
        key=request.idempotency_key,
        checkpoint=checkpoint.id if checkpoint is not None else None,
        missed=found.missed,
        extra={name: value for name in _ECHOED if (value := getattr(request, name)) is not None},
    )


def check_image(image: str, *, field: str, refusal: Callable[[str], str | None]) -> None:
    """Check that the caller may use an image. Raises ApiError 422."""
    why = refusal(image)
    if why is not None:
        raise ApiError(422, f"{field}: {why}", field=field)


def _default(value: float | None, default: float) -> float:
    return default if value is None else value


def _refuse_unsupported(request: CreateRequest) -> None:
    if request.volumes:
        raise ApiError(
            422,
            "volumes: not supported: leave it out, and use uploads or a checkpoint for files",
            field="volumes",
        )
    for field, why in _NOT_HERE.items():
        if getattr(request, field):
            raise ApiError(422, f"{field}: {why}", field=field)
    if request.gpu_type and not request.gpu_count and request.pool is None:
        raise ApiError(422, "gpu_type: set gpu_count, too, or leave it out", field="gpu_type")
    here = _MACHINES.get(platform.machine())
    if request.arch is not None and here is not None and request.arch != here:
        raise ApiError(422, f"arch: this server only has {here}: use that, or leave it out", field="arch")
    if request.docker_image and request.image and request.docker_image != request.image:
        raise ApiError(
            422, "image: differs from docker_image, of which it is an alias; leave one out", field="image"
        )
    if request.advanced_configs is not None and _depth(request.advanced_configs) > 20:
        raise ApiError(422, "advanced_configs: nested deeper than 20 levels", field="advanced_configs")


def _refuse_beside_checkpoint(request: CreateRequest) -> None:
    for field in ("docker_image", "image", "disk_size_gb", "arch"):
        if getattr(request, field) is not None:
            raise ApiError(422, f"{field}: the checkpoint determines it; leave it out", field=field)


def _check_pool(request: CreateRequest, pool: PoolSpec | None) -> None:
    if request.pool is None:
        return
    if pool is None:
        raise ApiError(
            422,
            f"pool: no pool {request.pool!r} that this key may use; GET /api/v1/pools lists those",
            field="pool",
        )
    asked = {
        "cpu_cores": (request.cpu_cores, pool.template.cpu),
        "memory_gb": (request.memory_gb, pool.template.memory / (1 << 30)),
        "disk_size_gb": (request.disk_size_gb, pool.template.disk / (1 << 30)),
        "pids": (request.pids, pool.template.pids),
        "gpu_count": (request.gpu_count, pool.template.gpu_count),
    }
    for field, (wanted, has) in asked.items():
        if wanted is not None and not math.isclose(wanted, has, rel_tol=1e-6):
            raise ApiError(
                422, f"{field}: pool {request.pool!r} has {has:g}: use that, or leave it out", field=field
            )
    its = pool.template.gpu_type
    if request.gpu_type and request.gpu_type != its:
        has_type = "any type" if its is None else repr(its)
        text = f"gpu_type: pool {request.pool!r} has {has_type}: use that, or leave it out"
        raise ApiError(422, text, field="gpu_type")


def _timeout(request: CreateRequest) -> tuple[float | None, int]:
    minutes = 60 if request.timeout_minutes is None else request.timeout_minutes
    if minutes == 0:
        text = "timeout_minutes must be negative for infinite or >= 1"
        raise ApiError(422, text, field="timeout_minutes")
    if request.timeout_seconds is not None:
        return request.timeout_seconds, math.ceil(request.timeout_seconds / 60)
    return (None, -1) if minutes < 0 else (minutes * 60.0, minutes)


def _secret_refs(request: CreateRequest) -> dict[str, SecretRef]:
    return {name: SecretRef(ref.secret, ref.key) for name, ref in (request.secret_refs or {}).items()}


def _idle_timeout(request: CreateRequest, timeout: float | None) -> float | None:
    if request.idle_timeout_seconds is not None:
        return request.idle_timeout_seconds
    if request.idle_timeout_minutes is None:
        return None
    idle = request.idle_timeout_minutes * 60.0
    if timeout is not None and request.timeout_seconds is None and idle > timeout:
        text = "idle_timeout_minutes must not be more than timeout_minutes"
        raise ApiError(422, text, field="idle_timeout_minutes")
    return idle


def _network(request: CreateRequest) -> Any:
    if request.network is not None:
        return request.network
    return "none" if request.network_access is False or request.network_allowlist == [] else "full"


def _egress(request: CreateRequest, *, network: str) -> Egress | None:
    """Return the egress policy: an empty allowlist means no network unless network is full, an empty denylist none."""
    allowed, denied = request.network_allowlist, request.network_denylist or None
    field = "network_denylist" if allowed is None else "network_allowlist"
    if network == "none" and (allowed or denied):
        raise ApiError(
            422,
            f"{field}: the request asks for no network: leave the list out, or set network to full",
            field=field,
        )
    if network == "none" or (allowed is None and denied is None):
        return None
    if allowed is not None and denied is not None:
        raise ApiError(422, f"{field}: set either this or network_denylist", field=field)
    try:
        return canonical(allowlist=allowed, denylist=denied)
    except BadTarget as error:
        raise ApiError(422, f"{field}: {error}", field=f"{field}.{error.number}") from error


def _depth(value: Any) -> int:
    deepest = 0
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        deepest = max(deepest, depth)
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        stack.extend((child, depth + 1) for child in inner)
    return deepest
