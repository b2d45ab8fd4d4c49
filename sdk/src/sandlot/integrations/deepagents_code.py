"""The sandbox provider `sandlot` of Deep Agents Code, which finds it by its entry point."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from deepagents.backends.protocol import ExecuteResponse
from deepagents_code.integrations.sandbox_provider import (
    SandboxError,
    SandboxInstallHint,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

from sandlot._sync.sandbox import Sandbox
from sandlot.errors import NotFound, SandboxLost, SandlotError
from sandlot.integrations import _orphans
from sandlot.integrations._cancellable_threads import in_cancellable_thread
from sandlot.integrations.deepagents import SandlotBackend

WORKING_DIR = "/workspace"

Result = TypeVar("Result")


class SandlotProvider(SandboxProvider):
    """Creates, finds and deletes sandboxes of the server of SANDLOT_URL and SANDLOT_API_KEY.

    Those that it created and that nobody deleted are deleted when the process has ended, also by a signal.
    """

    _metadata = SandboxProviderMetadata(
        name="sandlot",
        working_dir=WORKING_DIR,
        install=SandboxInstallHint(kind="package", name="sandlot"),
        supports_sandbox_id=True,
        supports_snapshot_name=False,
        backend_module="sandlot.integrations.deepagents",
    )

    @property
    def metadata(self) -> SandboxProviderMetadata:
        """What Deep Agents Code shows of this provider."""
        return self._metadata

    def get_or_create(
        self, *, sandbox_id: str | None = None, working_dir: str = WORKING_DIR, **create: Any
    ) -> SandlotBackend:
        """Return the sandbox of this id, or a new one; `create` has arguments of `sandlot.Sandbox.create`."""
        return _off_the_loop(
            partial(self._get_or_create, sandbox_id=sandbox_id, working_dir=working_dir, **create)
        )

    def _get_or_create(self, *, sandbox_id: str | None, working_dir: str, **create: Any) -> SandlotBackend:
        if sandbox_id is not None:
            return _Backend(_found(sandbox_id), working_dir=working_dir)
        try:
            box = Sandbox.create(**create)
        except SandlotError as error:
            raise SandboxError(f"cannot create a sandbox: {error}") from error
        try:
            # The server of `dcode` dies of the signal that ends it, before it would delete its sandbox.
            _orphans.watch(box)
            box.files.mkdir(working_dir)
        except BaseException as error:
            _delete(box)
            if isinstance(error, SandlotError):
                raise SandboxError(f"working_dir: cannot make {working_dir}: {error}") from error
            raise
        return _Backend(box, working_dir=working_dir)

    async def aget_or_create(self, *, sandbox_id: str | None = None, **create: Any) -> SandlotBackend:
        """Do as `get_or_create`; a cancelled caller leaves no new sandbox."""
        return await in_cancellable_thread(
            partial(self.get_or_create, sandbox_id=sandbox_id, **create),
            discard=_discard if sandbox_id is None else None,
        )

    def delete(self, *, sandbox_id: str, **_: Any) -> None:
        """End a sandbox; one that has ended already is no error. Raises SandboxNotFoundError."""
        try:
            _off_the_loop(lambda: _delete(Sandbox.connect(sandbox_id)))
        except NotFound as error:
            raise SandboxNotFoundError(sandbox_id) from error


class _Backend(SandlotBackend):
    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return _off_the_loop(partial(super().execute, command, timeout=timeout))


def _off_the_loop(call: Callable[[], Result]) -> Result:
    """Return `call()`, by another thread if this one runs an event loop.

    The server of `dcode` creates and sets up a sandbox on its loop, where it lets no code connect a socket.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, call).result()


def _delete(box: Sandbox) -> None:
    box.delete()
    _orphans.release(box.id)


def _discard(backend: SandlotBackend) -> None:
    _delete(backend.box)


def _found(sandbox_id: str) -> Sandbox:
    try:
        box = Sandbox.connect(sandbox_id)
    except (NotFound, SandboxLost) as error:
        raise SandboxNotFoundError(sandbox_id) from error
    if box.info.ended:
        raise SandboxNotFoundError(sandbox_id)
    return box
