"""Reads and writes ImageWarmup resources, which the controller carries out; requests are rare, so nothing is cached."""

from __future__ import annotations

import msgspec
from sandlot_contract import names
from sandlot_kube import clock, paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.warmups import ImageWarmup, WarmupPhase

from ...core.backend import BackendError
from ...core.warmups import ImageFailure, Warmup, WarmupId, WarmupSpec, WarmupState
from .translate import refusal

_TIMEOUT = 10.0  # seconds for a request, while a caller waits
_STATES = {WarmupPhase.RUNNING: WarmupState.RUNNING, WarmupPhase.DONE: WarmupState.DONE}


class _List(msgspec.Struct):
    items: list[ImageWarmup] = []


class KubernetesWarmups:
    """The warm-ups of one namespace."""

    def __init__(self, client: KubeClient, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def all(self) -> list[Warmup]:
        try:
            body = await self._client.request("GET", paths.warmups(self._namespace), timeout=_TIMEOUT)
        except KubeError as error:
            raise _failure(error) from error
        found = [_warmup(one) for one in msgspec.json.decode(body, type=_List).items]
        return sorted(found, key=lambda warmup: warmup.created_at)

    async def find(self, warmup_id: WarmupId) -> Warmup | None:
        try:
            path = paths.warmups(self._namespace, warmup_id)
            body = await self._client.request("GET", path, timeout=_TIMEOUT)
        except KubeError as error:
            if error.status == 404:
                return None
            raise _failure(error) from error
        return _warmup(msgspec.json.decode(body, type=ImageWarmup))

    async def create(self, spec: WarmupSpec) -> Warmup:
        document = {
            "apiVersion": names.API_VERSION,
            "kind": names.WARMUP_KIND,
            "metadata": {"name": spec.id},
            "spec": {
                "tenant": spec.tenant,
                "images": [{"name": image, "weight": weight} for image, weight in spec.images.items()],
            },
        }
        try:
            path = paths.warmups(self._namespace)
            body = await self._client.request("POST", path, body=document, timeout=_TIMEOUT)
        except KubeError as error:
            raise _failure(error) from error
        return _warmup(msgspec.json.decode(body, type=ImageWarmup))

    async def delete(self, warmup_id: WarmupId) -> bool:
        try:
            path = paths.warmups(self._namespace, warmup_id)
            await self._client.request("DELETE", path, timeout=_TIMEOUT)
        except KubeError as error:
            if error.status == 404:
                return False
            raise _failure(error) from error
        return True


def _failure(error: KubeError) -> BackendError:
    if error.status == 404:
        return BackendError(
            "the cluster has no resource ImageWarmup: apply the CRDs of this version's chart, as the upgrade page says"
        )
    return refusal(error, retry_after=2.0)


def _warmup(resource: ImageWarmup) -> Warmup:
    spec, status = resource.spec, resource.status
    images = {image.name: image.weight for image in spec.images}
    return Warmup(
        WarmupSpec(WarmupId(resource.metadata.name), spec.tenant, images),
        next((state for phase, state in _STATES.items() if phase == status.phase), WarmupState.PENDING),
        created_at=clock.seconds(resource.metadata.creation_timestamp) or 0.0,
        finished_at=clock.seconds(status.finished_at),
        ready=status.ready,
        failed=status.failed,
        copies=status.copies,
        copies_ready=status.copies_ready,
        bytes=status.bytes,
        seconds_left=status.seconds_left,
        errors=tuple(ImageFailure(error.image, error.message, error.node) for error in status.errors),
        message=status.message,
    )
