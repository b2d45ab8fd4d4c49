"""Notes that all gateways share about live sandboxes, stored in annotations of their Sandbox resources."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from sandlot_contract.ids import SandboxId
from sandlot_contract.names import ANNOTATION_NOTE, LABEL_PORT
from sandlot_kube import ends, paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox

from ...core.backend import Unavailable
from ...core.gateways import NotesChanged
from .translate import refusal

_log = logging.getLogger(__name__)


class _List(msgspec.Struct):
    items: list[Sandbox]


class KubernetesNotes:
    """Implements `Notes`. `resource_of` waits for a sandbox's Sandbox resource and returns its name."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        resource_of: Callable[[SandboxId], Awaitable[str | None]],
        retry_after: float,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._resource_of = resource_of
        self._retry_after = retry_after
        self._told: list[NotesChanged] = []
        self._seen: dict[SandboxId, dict[str, str]] = {}

    def subscribe(self, told: NotesChanged) -> None:
        self._told.append(told)

    def changed(self, sandbox: Sandbox) -> None:
        """Handle a watch event."""
        owner = sandbox.spec.belongs_to
        if owner is None or sandbox.spec.waits:
            return
        texts = {} if ends.of(sandbox) is not None else _notes(sandbox)
        if texts == self._seen.get(owner, {}):
            return
        if texts:
            self._seen[owner] = texts
        else:
            self._seen.pop(owner, None)
        notes = {key: _read(text) for key, text in texts.items()}
        for told in self._told:
            told(owner, notes)

    def tell_again(self) -> None:
        for owner, texts in list(self._seen.items()):
            notes = {key: _read(text) for key, text in texts.items()}
            for told in self._told:
                told(owner, notes)

    def deleted(self, sandbox: Sandbox) -> None:
        if (owner := sandbox.spec.belongs_to) is not None:
            self._seen.pop(owner, None)

    async def put(
        self, sandbox_id: SandboxId, key: str, document: dict[str, Any], *, port: int | None
    ) -> bool:
        """Store a note; return False if another live sandbox has the port. Raises BackendError."""
        await self._write(sandbox_id, key, msgspec.json.encode(document).decode(), port=port)
        if port is None or await self._alone(sandbox_id, port):
            return True
        await self._write(sandbox_id, key, None, port=port)
        return False

    async def take(self, sandbox_id: SandboxId, key: str, *, port: int | None) -> None:
        await self._write(sandbox_id, key, None, port=port)

    async def _write(self, sandbox_id: SandboxId, key: str, text: str | None, *, port: int | None) -> None:
        name = await self._resource_of(sandbox_id)
        if name is None:
            raise Unavailable(
                "the sandbox's record is not written yet: try again after Retry-After",
                retry_after=self._retry_after,
            )
        metadata: dict[str, Any] = {"annotations": {ANNOTATION_NOTE + key: text}}
        if port is not None:
            metadata["labels"] = {f"{LABEL_PORT}{port}": None if text is None else ""}
        path = paths.sandboxes(self._namespace, name)
        try:
            await self._client.request(
                "PATCH", path, body={"metadata": metadata}, content_type=MERGE_PATCH, timeout=5.0
            )
        except KubeError as error:
            if text is None and error.status == 404:
                return
            raise refusal(error, retry_after=self._retry_after) from error

    async def _alone(self, sandbox_id: SandboxId, port: int) -> bool:
        """Return whether no other sandbox has the port, after writing the own label: of two, one sees the other."""
        params = {"labelSelector": f"{LABEL_PORT}{port}"}
        try:
            body = await self._client.request(
                "GET", paths.sandboxes(self._namespace), params=params, timeout=5.0
            )
        except KubeError as error:
            await self._write(sandbox_id, "", None, port=port)
            raise refusal(error, retry_after=self._retry_after) from error
        found = msgspec.json.decode(body, type=_List).items
        return all(each.spec.belongs_to == sandbox_id or ends.of(each) is not None for each in found)


def _notes(sandbox: Sandbox) -> dict[str, str]:
    annotations = sandbox.metadata.annotations
    return {
        key.removeprefix(ANNOTATION_NOTE): text
        for key, text in annotations.items()
        if key.startswith(ANNOTATION_NOTE)
    }


def _read(text: str) -> Any:
    """Decode a note; return None for invalid JSON, which no gateway writes."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
