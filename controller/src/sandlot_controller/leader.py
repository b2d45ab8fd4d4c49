"""Leader election by a Lease: one controller works for as long as it can renew it."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

_log = logging.getLogger(__name__)
_RELEASE = (
    5.0  # seconds; the process is about to end, and without the release the next one waits for the Lease
)


class LeadershipLost(Exception):
    """The Lease was not renewed in time or has another holder; all work must stop at once."""


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}  # kept, since a PUT removes what it does not name


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Leader:
    """Leader election by one Lease: call `acquire`, then `hold` while working, then `release`.

    The age of a Lease is measured by our own clock from when we last saw it change, as the clocks of two machines may
    differ.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        seconds: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # A restarted container has the same pod name, and must not mistake its predecessor's Lease for its own.
        self.identity = f"{identity}_{secrets.token_hex(4)}"
        self.standing_by = asyncio.Event()  # another holds the Lease, or we could not acquire it
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.path = f"{self._collection}/{name}"
        self._name = name
        self._namespace = namespace
        self._seconds = seconds
        self._clock = clock
        self._held: _Lease | None = None
        # another holder's Lease: its resource version, and when we first saw it
        self._seen: tuple[str, float] = ("", 0.0)
        self._renewed_at = 0.0

    async def acquire(self) -> None:
        """Wait until we hold the Lease."""
        while True:
            began = self._clock()
            try:
                if await self._try():
                    self._renewed_at = began
                    self.standing_by.clear()
                    _log.info("%s holds the Lease %s", self.identity, self._name)
                    return
            except KubeError as error:
                _log.warning("could not acquire the Lease %s, trying again: %s", self._name, error)
            self.standing_by.set()
            await asyncio.sleep(self._seconds / 8 * random.uniform(0.8, 1.2))

    async def hold(self) -> None:
        """Renew until cancelled. Raises LeadershipLost before another controller can acquire the Lease."""
        assert self._held is not None
        # The rest of the time is for stopping all work.
        patience = self._seconds * 2 / 3
        while True:
            left = self._renewed_at + patience - self._clock()
            if left <= 0:
                raise LeadershipLost(f"the Lease {self._name} could not be renewed for {patience:g} s")
            began = self._clock()
            try:
                async with asyncio.timeout(left):
                    await self._write(self._held, holder=self.identity)
                self._renewed_at = began
            except TimeoutError:
                continue
            except KubeError as error:
                if error.status in (404, 409) and not await self._still_ours():
                    raise LeadershipLost(f"the Lease {self._name} has another holder") from error
                _log.warning("could not renew the Lease %s: %s", self._name, error)
            await asyncio.sleep(min(self._seconds / 8, max(0.05, left)))

    async def release(self) -> None:
        """Release the Lease so that another can take it at once; best effort."""
        if self._held is None:
            return
        self.standing_by.set()
        try:
            async with asyncio.timeout(_RELEASE):
                await self._give_up()
        except (KubeError, TimeoutError) as error:
            _log.info("could not release the Lease %s; it will expire: %s", self._name, error or "no answer")
        finally:
            self._held = None

    async def _give_up(self) -> None:
        assert self._held is not None
        try:
            await self._write(self._held, holder="")
        except KubeError as error:
            # The end may have cut off a renewal that the API server has written.
            if error.status != 409 or not await self._still_ours():
                raise
            await self._write(self._held, holder="")

    async def _try(self) -> bool:
        try:
            body = await self._client.request("GET", self.path)
        except KubeError as error:
            if error.status != 404:
                raise
            lease = _Lease(_Metadata(name=self._name, namespace=self._namespace))
            return await self._claim(lease, method="POST")
        lease = msgspec.json.decode(body, type=_Lease)
        if lease.spec.holder_identity:
            version = lease.metadata.resource_version
            if self._seen[0] != version:
                self._seen = (version, self._clock())
            if self._clock() < self._seen[1] + (lease.spec.lease_duration_seconds or self._seconds):
                return False
        lease.spec.lease_transitions += 1
        return await self._claim(lease, method="PUT")

    async def _claim(self, lease: _Lease, *, method: str) -> bool:
        lease.spec.acquire_time = _now()
        try:
            await self._write(lease, holder=self.identity, method=method)
        except KubeError as error:
            if error.status == 409:
                return False  # another controller was faster
            raise
        return True

    async def _write(self, lease: _Lease, *, holder: str, method: str = "PUT") -> None:
        lease.spec.holder_identity = holder
        lease.spec.renew_time = _now()
        lease.spec.lease_duration_seconds = max(1, round(self._seconds)) if holder else 1
        path = self._collection if method == "POST" else self.path
        body = await self._client.request(method, path, body=msgspec.json.encode(lease))
        if holder:
            self._held = msgspec.json.decode(body, type=_Lease)

    async def _still_ours(self) -> bool:
        """Return whether a conflict was caused by an own write whose response was lost."""
        try:
            body = await self._client.request("GET", self.path)
        except KubeError as error:
            return error.status != 404
        lease = msgspec.json.decode(body, type=_Lease)
        if lease.spec.holder_identity != self.identity:
            return False
        self._held = lease
        return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
