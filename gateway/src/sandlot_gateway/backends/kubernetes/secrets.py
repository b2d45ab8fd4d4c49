"""Reads Secrets that creates name by reference: those of one namespace, for the tenants that their labels list."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec
from sandlot_contract.names import LABEL_TENANT
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

from ...core.backend import Unavailable
from ...core.secret_refs import SecretSource
from .settings import KubernetesSettings

_log = logging.getLogger(__name__)

_REFUSAL_STEP = 0.1  # seconds: a refusal takes this long, or a multiple of it, whatever the API server has
# The type of a certificate; with the key of the sidecars' own, a sandbox could pose as any sidecar.
_CERTIFICATE = "kubernetes.io/tls"
_REQUESTS = 8  # at the same time


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = {}


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None
    type: str = ""


@dataclass(slots=True)
class _Reads:
    """The reads of one Secret, one after the other, while creates wait for them."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    readers: int = 0
    asked: int = 0  # questions so far
    answers: int = 0  # how many of them the latest read answers: those from before it began
    outcome: _Secret | Unavailable | None = None  # its result; None: there is no such Secret


def secrets_of(client: KubeClient, settings: KubernetesSettings) -> SecretSource | None:
    """Return the Secrets of the configured namespace; None without one."""
    namespace = settings.secrets_namespace
    return None if namespace is None else KubernetesSecrets(client, namespace=namespace, settings=settings)


class KubernetesSecrets:
    """A create gets what the API server has at or after its question; creates at the same time share a request."""

    def __init__(self, client: KubeClient, *, namespace: str, settings: KubernetesSettings) -> None:
        self._client = client
        self._namespace = namespace
        self._timeout = settings.secrets_timeout
        self._retry_after = settings.retry_after
        self._reads: dict[str, _Reads] = {}
        # Creates with many references must leave connections to launches and records.
        self._requests = asyncio.Semaphore(_REQUESTS)

    async def read(self, secret: str, keys: Collection[str], *, tenant: str) -> Mapping[str, bytes]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        values = self._usable(await self._latest(secret), secret, keys, tenant)
        if not values.keys() >= set(keys):
            # Else the time would tell a Secret of others, which has to be sent and decoded, from one that does not exist.
            await asyncio.sleep(_REFUSAL_STEP - (loop.time() - began) % _REFUSAL_STEP)
        return values

    def _usable(
        self, found: _Secret | None, secret: str, keys: Collection[str], tenant: str
    ) -> Mapping[str, bytes]:
        """Return what of these keys the Secret has for the tenant."""
        if found is None:
            self._refused(secret, tenant, "it does not exist")
            return {}
        if found.metadata.labels.get(LABEL_TENANT + tenant) != "true":
            self._refused(secret, tenant, f'it has no label {LABEL_TENANT}{tenant}: "true"')
            return {}
        if found.type == _CERTIFICATE:
            self._refused(secret, tenant, f"it is of the type {_CERTIFICATE}: use another one for a tenant's")
            return {}
        data = found.data or {}
        values = {key: base64.b64decode(data[key]) for key in keys if key in data}
        for key in set(keys) - values.keys():
            self._refused(secret, tenant, f"it has no key {key!r}")
        return values

    async def _latest(self, secret: str) -> _Secret | None:
        """Return the Secret as it is now, from a request that begins after this call. Raises Unavailable."""
        reads = self._reads.setdefault(secret, _Reads())
        reads.readers += 1
        reads.asked += 1
        question = reads.asked
        try:
            async with reads.turn:
                if reads.answers < question:
                    async with self._requests:
                        answered = reads.asked
                        reads.outcome = await self._request(secret)
                        reads.answers = answered
                if isinstance(reads.outcome, Unavailable):
                    raise reads.outcome
                return reads.outcome
        finally:
            reads.readers -= 1
            if not reads.readers:
                del self._reads[secret]  # no value stays in memory

    async def _request(self, secret: str) -> _Secret | Unavailable | None:
        path = paths.secrets(self._namespace, secret)
        try:
            body = await self._client.request("GET", path, timeout=self._timeout)
            return msgspec.json.decode(body, type=_Secret)
        except KubeError as error:
            if error.status == 404:
                return None
            _log.warning("cannot read Secrets of namespace %s: %s", self._namespace, error)
            why = _FORBIDDEN if error.status == 403 else "the Kubernetes API server does not answer"
            wait = max(self._retry_after, error.retry_after or 0.0)
            return Unavailable(
                f"secret_refs cannot be read: {why}; try again later, or ask the operator", retry_after=wait
            )

    def _refused(self, secret: str, tenant: str, why: str) -> None:
        # The caller gets one text for every reason.
        _log.info("tenant %s may not use Secret %s of namespace %s: %s", tenant, secret, self._namespace, why)


_FORBIDDEN = (
    "the gateway has no right to get Secrets of the configured namespace (chart value gateway.secretRefs)"
)
