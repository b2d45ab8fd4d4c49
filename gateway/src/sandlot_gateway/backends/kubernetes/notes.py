"""Notes that all gateways share about live sandboxes, stored in annotations of their Sandbox resources."""

from __future__ import annotations

import asyncio
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
from ...tasks import Tasks
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
        # Of live sandboxes, the keys and ports of notes whose `put` failed: the API server may write one late.
        self._failed: dict[SandboxId, dict[str, int | None]] = {}
        self._leaving: set[str] = set()  # those of them that are being taken back
        self._tasks = Tasks()

    async def close(self, *, timeout: float) -> None:
        """Wait up to `timeout` seconds for notes that are being taken back."""
        if cut := await self._tasks.close(timeout=timeout):
            _log.warning("gave up %d notes that the API server did not take back in time", cut)

    def subscribe(self, told: NotesChanged) -> None:
        self._told.append(told)

    def changed(self, sandbox: Sandbox) -> None:
        """Handle a watch event."""
        owner = sandbox.spec.belongs_to
        if owner is None or sandbox.spec.waits:
            return
        texts: dict[str, str] = {}
        if ends.of(sandbox) is None:
            texts = _notes(sandbox)
        else:
            self._failed.pop(owner, None)
        for key, port in list(self._failed.get(owner, {}).items()):
            if texts.pop(key, None) is not None:
                self._take_back(sandbox.metadata.name, owner, key, port=port)
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

    def deleted(self, sandbox_id: SandboxId | None) -> None:
        """Forget a sandbox whose resource is deleted."""
        if sandbox_id is not None:
            self._seen.pop(sandbox_id, None)
            self._failed.pop(sandbox_id, None)

    async def put(
        self, sandbox_id: SandboxId, key: str, document: dict[str, Any], *, port: int | None
    ) -> bool:
        """Store a note; return False if the port is not free for it. Raises BackendError: then none is stored."""
        name = await self._name(sandbox_id)
        if port is not None and port in self._leaving_ports(sandbox_id):
            return False  # a note of this sandbox would lose the port's label
        written = stays = gone = False
        try:
            await self._write(name, key, msgspec.json.encode(document).decode(), port=port)
            written = True
            stays = port is None or await self._alone(sandbox_id, port)
            if not stays:
                await self._write(name, key, None, port=port)
                gone = True
        except KubeError as error:
            # After any other error the note may be stored.
            gone = not written and 400 <= error.status < 500 and error.status != 408
            raise refusal(error, retry_after=self._retry_after) from error
        finally:
            if not stays and not gone:
                self._take_back(name, sandbox_id, key, port=port)
        return stays

    async def take(self, sandbox_id: SandboxId, key: str, *, port: int | None) -> None:
        name = await self._name(sandbox_id)
        try:
            await self._write(name, key, None, port=port)
        except KubeError as error:
            raise refusal(error, retry_after=self._retry_after) from error

    async def _name(self, sandbox_id: SandboxId) -> str:
        name = await self._resource_of(sandbox_id)
        if name is None:
            raise Unavailable(
                "the sandbox's record is not written yet: try again after Retry-After",
                retry_after=self._retry_after,
            )
        return name

    async def _write(self, name: str, key: str, text: str | None, *, port: int | None) -> None:
        """Write a note, or remove it for None, together with the label of its port. Raises KubeError."""
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
            raise

    async def _alone(self, sandbox_id: SandboxId, port: int) -> bool:
        """Return whether no other sandbox has the port, after writing the own label: of two, one sees the other."""
        params = {"labelSelector": f"{LABEL_PORT}{port}"}
        body = await self._client.request("GET", paths.sandboxes(self._namespace), params=params, timeout=5.0)
        found = msgspec.json.decode(body, type=_List).items
        return all(each.spec.belongs_to == sandbox_id or ends.of(each) is not None for each in found)

    # Notes whose `put` failed.

    def _take_back(self, name: str, sandbox_id: SandboxId, key: str, *, port: int | None) -> None:
        """Remove a note that may be stored although its caller was told that it is not."""
        self._failed.setdefault(sandbox_id, {})[key] = port
        if key not in self._leaving:
            self._leaving.add(key)
            self._tasks.spawn(self._remove(name, sandbox_id, key, port=port))

    async def _remove(self, name: str, sandbox_id: SandboxId, key: str, *, port: int | None) -> None:
        try:
            while key in self._failed.get(sandbox_id, ()):  # else the sandbox has ended
                try:
                    await self._write(name, key, None, port=port)
                    return
                except KubeError as error:
                    if _is_final(error):
                        _log.warning("cannot take back a note of sandbox %s: %s", sandbox_id, error)
                        return
                await asyncio.sleep(self._retry_after)
        finally:
            self._leaving.discard(key)

    def _leaving_ports(self, sandbox_id: SandboxId) -> set[int | None]:
        return {port for key, port in self._failed.get(sandbox_id, {}).items() if key in self._leaving}


def _is_final(error: KubeError) -> bool:
    """Return whether the API server has refused the request, and would again."""
    return 400 <= error.status < 500 and error.status not in (401, 408, 429)


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
