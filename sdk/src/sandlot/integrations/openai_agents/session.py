"""A session of the OpenAI Agents SDK in a sandbox: commands, processes, files and ports."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import io
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from agents.sandbox import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.workspace_paths import sandbox_path_str

from sandlot import models
from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import ApiError, FileMissing, StartFailed
from sandlot.integrations._lost_commands import KILLED, EndedByCode, own_end
from sandlot.integrations.openai_agents import archives, results
from sandlot.integrations.openai_agents.losses import Calls
from sandlot.integrations.openai_agents.processes import Processes
from sandlot.integrations.openai_agents.state import SandlotSessionState

Result = TypeVar("Result")

_FAILED = (ApiError, EndedByCode)


class SandlotSession(BaseSandboxSession):
    """A session in one sandbox. `create` makes another one: from a checkpoint, with the settings of its client."""

    state: SandlotSessionState

    def __init__(
        self,
        *,
        state: SandlotSessionState,
        box: AsyncSandbox,
        create: Callable[[str], Coroutine[Any, Any, AsyncSandbox]],
    ) -> None:
        self.state = state
        self._calls = Calls(box)
        self._processes = Processes(self._calls)
        self._create = create
        self._root_made = state.workspace_root_ready
        self._endpoints: dict[int, str] = {}  # a sandbox may have few exposures

    # life

    async def start(self) -> None:
        """Prepare the workspace. The framework calls it before each turn of a session that does not run.

        So a loss that one of its tools has caught ends the agent's run here, before the model reads of it.
        """
        if self._calls.lost is not None:
            raise self._calls.lost
        if self._calls.ended_by_code:
            return  # a result of the code: further commands say so
        await super().start()

    async def running(self) -> bool:
        """Return whether the workspace is ready and the server still has the sandbox."""
        return self._root_made and await self._calls.running()

    async def delete(self) -> None:
        """End the sandbox; one that has ended is no error."""
        await self._calls.delete()

    async def _prepare_backend_workspace(self) -> None:
        if self._root_made:
            return
        root = self.state.manifest.root
        made = await self._exec(["mkdir", "-p", "--", root], timeout=None)
        if not made.ok():
            context = {"exit_code": made.exit_code, "stderr": made.stderr.decode("utf-8", "replace")}
            message = f"cannot make the workspace {root}: {context['stderr'].strip()}"
            raise WorkspaceStartError(path=self._workspace_root_path(), context=context, message=message)
        self._root_made = True

    def _mark_workspace_root_ready_from_probe(self) -> None:
        super()._mark_workspace_root_ready_from_probe()
        self._root_made = True

    async def _after_start(self) -> None:
        # The workspace's restoration may have replaced the sandbox: the helpers are missing in the new one.
        if self._runtime_helper_cache_key != self._current_runtime_helper_cache_key():
            await self._ensure_runtime_helpers()

    async def _shutdown_backend(self) -> None:
        await self.delete()

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object | None:
        return self.state.sandbox_id

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    # commands

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        return await self._exec([str(word) for word in command], timeout=timeout)

    async def _exec(self, command: list[str], *, timeout: float | None) -> ExecResult:
        user, words = _user_of(command)
        env = await self.state.manifest.environment.resolve()

        async def ended(box: AsyncSandbox) -> models.ExecResult:
            limit = None if timeout is None else max(timeout, 0.1)
            result = await box.exec(words, timeout=limit, env=env, cwd=self._cwd(), user=user, stdin="")
            return own_end(result, box.id)

        try:
            result = await self._calls.run(ended)
        except StartFailed as error:
            return ExecResult(stdout=b"", stderr=f"{error}\n".encode(), exit_code=results.NOT_STARTED)
        except EndedByCode as error:
            return ExecResult(stdout=b"", stderr=f"{error}\n".encode(), exit_code=KILLED)
        if result.verdict == models.Verdict.TIMEOUT:
            output = {"stdout": result.stdout, "stderr": result.stderr}
            raise ExecTimeoutError(command=words, timeout_s=timeout, context=output)
        return ExecResult(
            stdout=result.stdout.encode(),
            stderr=result.stderr.encode() + (results.DROPPED if result.truncated else b""),
            exit_code=result.exit_code,
        )

    def _cwd(self) -> str | None:
        return self.state.manifest.root if self._root_made else None

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Start a process, with a terminal of 80 x 24 if `tty`, and return its output of the first seconds."""
        name, words = _user_of(self._prepare_exec_command(*command, shell=shell, user=user))
        env = await self.state.manifest.environment.resolve()
        try:
            return await self._processes.start(
                words,
                tty=tty,
                user=name,
                env=env,
                cwd=self._cwd(),
                timeout=timeout,
                yield_seconds=yield_time_s,
                tokens=max_output_tokens,
            )
        except StartFailed as error:
            return results.ended_process(error, results.NOT_STARTED)
        except EndedByCode as error:
            return results.ended_process(error, KILLED)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Write to a process with a terminal, and return its further output."""
        try:
            return await self._processes.write(
                session_id, chars, yield_seconds=yield_time_s, tokens=max_output_tokens
            )
        except StartFailed as error:  # it is told with the first output
            return results.ended_process(error, results.NOT_STARTED)
        except EndedByCode as error:
            return results.ended_process(error, KILLED)

    async def pty_terminate_all(self) -> None:
        await self._processes.end_all()

    # files

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Return a file's contents. Raises WorkspaceReadNotFoundError, WorkspaceArchiveReadError."""
        return io.BytesIO(await self._read(path, user=_name(user)))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._read(path, length=max_bytes)

    async def _read(self, path: Path, *, user: str | None = None, length: int | None = None) -> bytes:
        place = sandbox_path_str(await self._validate_path_access(path))
        try:
            return await self._calls.run(lambda box: box.files.read(place, length=length, user=user))
        except FileMissing as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except _FAILED as error:
            raise WorkspaceArchiveReadError(path=path, context=_why(error), cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Replace a file's contents; missing directories are made. Raises WorkspaceArchiveWriteError."""
        content = data.read()
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, bytes | bytearray):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
        payload = bytes(content)
        target = await self._validate_path_access(path, for_write=True)
        place, name = sandbox_path_str(target), _name(user)
        try:
            await self._calls.run(lambda box: box.files.write(place, payload, user=name))
        except _FAILED as error:
            message = f"cannot write {place}: {error}"
            raise WorkspaceArchiveWriteError(
                path=target, context=_why(error), cause=error, message=message
            ) from error

    async def persist_workspace(self) -> io.IOBase:
        """Return the workspace as a tar archive, or a reference to a checkpoint of the whole sandbox."""
        root = self._workspace_root_path()
        skipped = self._persist_workspace_skip_relpaths()
        try:
            # A checkpoint has all files, also those that a snapshot is to leave out.
            if self.state.workspace_persistence == "checkpoint" and not skipped:
                name = f"openai-agents-{self.state.session_id}"
                return await self._calls.run(lambda box: archives.checkpointed(box, name))
            return await self._calls.run(lambda box: archives.packed(box, root.as_posix(), skipped))
        except (*_FAILED, archives.TarFailed) as error:
            raise WorkspaceArchiveReadError(path=root, context=_why(error), cause=error) from error

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Fill the workspace from what `persist_workspace` returned."""
        root = self._workspace_root_path()
        content = data.read()
        if not isinstance(content, bytes | bytearray):
            raise WorkspaceWriteTypeError(path=root, actual_type=type(content).__name__)
        payload = bytes(content)
        checkpoint = archives.checkpoint_of(payload)
        try:
            if checkpoint is None:
                await self._calls.run(lambda box: archives.unpacked(box, root.as_posix(), payload))
                return
            box = await self._create(checkpoint)
        except (*_FAILED, archives.TarFailed) as error:
            raise WorkspaceArchiveWriteError(path=root, context=_why(error), cause=error) from error
        await self._calls.delete()
        self._calls.box = box
        self.state.sandbox_id = box.id
        self._endpoints.clear()

    # ports

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            endpoint = self._endpoints.get(port) or await self._calls.run(
                lambda box: box.expose(port, protocol="tcp")
            )
        except _FAILED as error:
            raise ExposedPortUnavailableError(
                port=port,
                exposed_ports=self.state.exposed_ports,
                reason="backend_unavailable",
                context=_why(error),
                cause=error,
            ) from error
        self._endpoints[port] = endpoint
        host, _, number = endpoint.rpartition(":")
        return ExposedPortEndpoint(host=host.strip("[]"), port=int(number))


def _user_of(command: list[str]) -> tuple[str | None, list[str]]:
    """Take off what the framework's base class writes for a user: images may have no sudo."""
    if len(command) > 4 and command[:2] == ["sudo", "-u"] and command[3] == "--":
        return command[2], command[4:]
    return None, command


def _name(user: str | User | None) -> str | None:
    return user if user is None or isinstance(user, str) else user.name


def _why(error: BaseException) -> dict[str, object]:
    return {"backend": "sandlot", "reason": str(error)}
