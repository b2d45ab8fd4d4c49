"""The gateway's pools: reads SandboxPool resources from a watch and writes them on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from sandlot_contract.template import Template
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import SandboxPool

from ...core.backend import BackendError, PoolChanged
from ...core.instances import PoolSpec, PoolStatus, by_template
from .translate import check_gpu_type, check_image, pool_body, pool_change, pool_spec, refusal

_TIMEOUT = 5.0  # seconds for a write, while a caller waits


class Pools:
    """`starting` counts a pool's instances that are not ready yet, `keeping_image` those of them that take no other
    image, `resetting` those being reset, by tenant.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        starting: Callable[[str], int],
        keeping_image: Callable[[str], int] = lambda pool: 0,
        resetting: Callable[[str], Mapping[str, int]] = lambda pool: {},
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._starting = starting
        self._keeping_image = keeping_image
        self._resetting = resetting
        self._pools: dict[str, SandboxPool] = {}
        self._specs: dict[str, PoolSpec] = {}
        self._listed: list[str] = []  # names of those known when the last list began
        # What a list that has begun, or the watch, may not show yet.
        self._written: dict[str, int] = {}  # name -> version that this gateway wrote or read
        self._removed: set[str] = set()  # uids of those that this gateway deleted

    # From the watch.

    def listing(self) -> None:
        """Note what a list that begins should show: what is made, changed or deleted meanwhile may be newer than it."""
        self._listed = list(self._pools)
        self._written.clear()
        self._removed.clear()

    def replaced(self, pools: list[SandboxPool]) -> None:
        there = {pool.metadata.name for pool in pools}
        for name in self._listed:
            if name not in there and name not in self._written:
                self._forget(name)
        for pool in pools:
            self.changed(pool)

    def changed(self, pool: SandboxPool) -> None:
        if pool.metadata.uid not in self._removed and self._is_news(pool):
            self._put(pool)

    def deleted(self, pool: SandboxPool) -> None:
        self._removed.discard(pool.metadata.uid)
        if self._is_news(pool):  # else this gateway has made another one of that name since
            self._forget(pool.metadata.name)

    def _is_news(self, pool: SandboxPool) -> bool:
        """Return whether this is no older than what this gateway wrote or read, which is shown from then on."""
        name = pool.metadata.name
        if _version(pool) < self._written.get(name, 0):
            return False
        self._written.pop(name, None)
        return True

    # For the gateway.

    def statuses(self) -> list[PoolStatus]:
        return [
            PoolStatus(
                spec,
                starting=self._starting(name),
                keeping_image=self._keeping_image(name),
                failures=told.failures,
                message=told.message or None,
                empty=not (told.ready or told.starting or told.claimed),
                resetting=self._resetting(name),
            )
            for name, spec in sorted(self._specs.items())
            for told in (self._pools[name].status,)
        ]

    def spec(self, name: str) -> PoolSpec | None:
        return self._specs.get(name)

    def template(self, key: str) -> Template | None:
        return next((spec.template for spec in self._specs.values() if spec.template.key == key), None)

    def serving(self, template: Template, *, tenant: str) -> list[str]:
        """Return the names of the pools of this template that the tenant may use."""
        specs = (spec for spec in self._specs.values() if spec.owner in (None, tenant))
        return [spec.name for spec in specs if by_template(spec.template) == by_template(template)]

    async def set(self, spec: PoolSpec) -> None:
        """Create the pool, or change what differs from the known one. Raises BackendError, PoolChanged."""
        known, before = self._pools.get(spec.name), self._specs.get(spec.name)
        # One that kubectl made, or an earlier version, must shrink to nothing although its template is refused.
        if spec.size or spec.bounds is not None or before is None or spec.template != before.template:
            _check(spec.template)
        try:
            body = await (self._create(spec) if known is None else self._change(known, spec))
        except KubeError as error:
            # The watch is behind: another gateway, the controller or kubectl has changed the pool.
            if error.status == 409 or (error.status == 404 and known is not None):
                await self._read(spec.name)
                raise PoolChanged(f"pool {spec.name!r} was changed at the same moment") from error
            raise refusal(error, retry_after=2.0) from error
        # The caller may read the pool at once, before the watch shows it.
        if body is not None:
            self._answered(body)

    async def delete(self, name: str) -> bool:
        """Delete the pool; return False if there is none. Raises BackendError."""
        try:
            await self._client.request("DELETE", paths.pools(self._namespace, name), timeout=_TIMEOUT)
        except KubeError as error:
            if error.status == 404:
                return False
            raise refusal(error, retry_after=2.0) from error
        if (known := self._pools.get(name)) is not None:
            self._removed.add(known.metadata.uid)
        self._forget(name)
        return True

    def _answered(self, body: bytes) -> None:
        """Apply an answer of the API server, unless the watch has shown a later version meanwhile."""
        pool = msgspec.json.decode(body, type=SandboxPool)
        name, version = pool.metadata.name, _version(pool)
        known = self._pools.get(name)
        if known is None or version >= _version(known):
            self._put(pool)
            self._written[name] = version

    def _put(self, pool: SandboxPool) -> None:
        self._pools[pool.metadata.name] = pool
        self._specs[pool.metadata.name] = pool_spec(pool)

    def _forget(self, name: str) -> None:
        self._pools.pop(name, None)
        self._specs.pop(name, None)
        self._written.pop(name, None)

    async def _create(self, spec: PoolSpec) -> bytes:
        return await self._client.request(
            "POST", paths.pools(self._namespace), body=pool_body(spec), timeout=_TIMEOUT
        )

    async def _change(self, known: SandboxPool, spec: PoolSpec) -> bytes | None:
        """Patch the pool; return None if nothing differs. A merge patch keeps the other fields."""
        change = pool_change(pool_spec(known), spec)
        if not change:
            return None
        return await self._client.request(
            "PATCH",
            paths.pools(self._namespace, spec.name),
            # Only if unchanged since it was read: it may have another owner by now.
            body={"metadata": {"resourceVersion": known.metadata.resource_version}, "spec": change},
            content_type=MERGE_PATCH,
            timeout=_TIMEOUT,
        )

    async def _read(self, name: str) -> None:
        """Read the pool again. Raises BackendError."""
        try:
            body = await self._client.request("GET", paths.pools(self._namespace, name), timeout=_TIMEOUT)
        except KubeError as error:
            if error.status != 404:
                raise refusal(error, retry_after=2.0) from error
            self._forget(name)
        else:
            self._answered(body)


def _check(template: Template) -> None:
    """Raise BackendError unless pods of this template can run."""
    if template.image:
        check_image(template)
    elif template.gpu_count:
        raise BackendError(
            "a pool with GPUs needs one: its pods cannot take the image of a create, over which the driver's "
            "files would be missing; set the image of its sandboxes",
            field="image",
        )
    check_gpu_type(template)


def _version(pool: SandboxPool) -> int:
    """Return a number that grows with each change of a pool, and from one of the name to the next."""
    version = pool.metadata.resource_version
    return int(version) if version.isdecimal() else 0
