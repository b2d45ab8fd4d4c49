"""A Pydantic AI workspace in a Sandlot sandbox: pass an instance as `workspace=` of an agent's run."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import errno
import posixpath
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    SupportsCommands,
    SupportsFilesystem,
    WorkspaceBackend,
    WorkspaceError,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from sandlot._async.client import default_client
from sandlot._async.sandbox import AsyncSandbox
from sandlot._tasks_async import each
from sandlot.errors import BadRequest, FileError, NotFound, SandboxLost, StartFailed
from sandlot.integrations._lost_commands import KILLED, EndedByCode, ended_by_code, own_end
from sandlot.integrations._os_errors import os_error
from sandlot.integrations._shared_loop import on_shared_loop
from sandlot.models import ExecResult, FileInfo, Verdict

Result = TypeVar("Result")

PROVIDER = "sandlot"
STATS = 16  # symbolic links of a directory that are looked up at a time
_MISSING = (FileNotFoundError, NotADirectoryError)
_ENTER = 'cd -P -- "$1" && pwd -P'
_MAKE = 'mkdir -p -- "$1" && cd -P -- "$1" && pwd -P'


class SandlotWorkspaceBackend(WorkspaceBackend, SupportsCommands, SupportsFilesystem):
    """A sandbox that the first operation creates, or the one that `ref` names.

    `create` has further arguments of `sandlot.Sandbox.create`. No run deletes the sandbox: `async with` or `delete`
    does, or its `timeout`, one hour by default.
    """

    def __init__(
        self,
        image: str | None = None,
        *,
        ref: WorkspaceRef | None = None,
        working_dir: str = "/workspace",
        url: str | None = None,
        api_key: str | None = None,
        **create: Any,
    ) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"ref: must be of the provider {PROVIDER!r}, not {ref.provider!r}")
        if not posixpath.isabs(working_dir):
            raise ValueError(f"working_dir: must be an absolute path, not {working_dir!r}")
        self._create: dict[str, Any] = {"image": image, **create}
        self._ref = ref
        self._wanted_dir = working_dir
        self._working_dir = ""
        self._url = url
        self._api_key = api_key
        self._box: AsyncSandbox | None = None
        self._lock = asyncio.Lock()  # used on the shared loop alone

    @property
    def ref(self) -> WorkspaceRef | None:
        """The sandbox's identity, from its creation on."""
        return self._ref

    async def __aenter__(self) -> SandlotWorkspaceBackend:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.delete()

    async def delete(self) -> None:
        """End the sandbox, if one was created or named; one that has ended already is no error."""

        async def deleted() -> None:
            async with self._lock:  # a create that is still running has a sandbox soon
                if self._ref is None:
                    return
                try:
                    box = self._box or await self._connected(self._ref.id)
                except WorkspaceUnavailableError:
                    return
                await box.delete()

        await on_shared_loop(deleted, to_the_end=True)

    async def working_dir(self) -> str:
        """Return the directory that commands start in."""
        await self._call(_nothing)
        return self._working_dir

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command. A time-out, lost output and a lost sandbox raise; any other end is a result.

        The exit code is 137, and `stderr` says why, where the code has ended the whole sandbox.
        """
        if isinstance(command, str) != shell:
            raise TypeError("command: a string needs shell=True, a list of arguments shell=False")
        words = command if isinstance(command, str) else list(command)

        async def ended(box: AsyncSandbox) -> ExecResult:
            result = await box.exec(words, env=env, cwd=self._working_dir, timeout=timeout, stdin="")
            return own_end(result, box.id)

        try:
            result = await self._call(ended)
        except StartFailed as error:
            raise WorkspaceError(f"cannot start a command in {self._working_dir}: {error}") from error
        except EndedByCode as error:
            return CommandResult(exit_code=KILLED, stdout="", stderr=f"{error}\n")
        output = {"stdout": result.stdout, "stderr": result.stderr}
        if result.verdict == Verdict.TIMEOUT:
            raise WorkspaceTimeoutError(f"the command ran longer than {timeout} s", **output)
        if result.truncated:
            total = result.stdout_bytes + result.stderr_bytes
            kept = len(result.stdout.encode()) + len(result.stderr.encode())
            message = (
                f"the command wrote {total} bytes, of which the sandbox kept {kept}: write them to a file"
            )
            raise WorkspaceOutputLimitError(message, limit=kept, **output)
        return CommandResult(exit_code=result.exit_code, **output)

    async def read_bytes(self, path: str) -> bytes:
        """Return a file's contents."""
        return await self._file(path, lambda box: box.files.read(path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace a file's contents, through a symbolic link; missing directories are made."""
        await self._file(path, lambda box: box.files.write(path, data))

    async def stat(self, path: str) -> FileEntry:
        """Return what a path names, after following links."""
        return _entry(path, await self._file(path, lambda box: box.files.stat(path)))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Return a directory's entries; a link is what it leads to, and a file if it leads nowhere."""

        async def listed(box: AsyncSandbox) -> list[FileEntry]:
            async def one(info: FileInfo) -> FileEntry:
                inside = posixpath.join(path, info.name)
                if info.type == "symlink":
                    try:
                        info = await box.files.stat(inside)
                    except (FileError, BadRequest):
                        return FileEntry(name=info.name, path=inside, is_dir=False, size=None)
                return _entry(inside, info)

            entries = await box.files.list(path)
            return await each(one, entries, concurrency=STATS, return_exceptions=False, progress=None)

        return await self._file(path, listed)

    async def make_dir(self, path: str) -> None:
        """Make a directory and those above it."""
        await self._file(path, lambda box: box.files.mkdir(path, parents=True))

    async def remove(self, path: str) -> None:
        """Remove a file or a tree. Raises ValueError for the working directory and those above it."""

        async def removed(box: AsyncSandbox) -> None:
            # Through a link, `/link/..` may be above the working directory, which the text of the path does not show.
            head, name = posixpath.split(path.rstrip("/") or "/")
            last = name not in ("", ".", "..")
            entered = await box.exec(["sh", "-c", _ENTER, "sh", head if last else path], stdin="")
            if entered.ok:
                target = posixpath.join(entered.stdout.removesuffix("\n"), name if last else "").rstrip("/")
                if f"{self._working_dir}/".startswith(f"{target}/"):
                    raise ValueError(f"path: {path} is the working directory or above it, which stays")
            await box.files.remove(path, recursive=True)

        await self._file(path, removed)

    async def exists(self, path: str) -> bool:
        """Return whether a path names something, after following links."""
        try:
            await self.stat(path)
        except _MISSING:
            return False
        except OSError as error:
            if isinstance(error, PermissionError):
                raise
            return False  # a loop of links
        return True

    async def _file(self, path: str, work: Callable[[AsyncSandbox], Coroutine[Any, Any, Result]]) -> Result:
        """Do a file operation; its failures are Python's own errors of files."""
        try:
            return await self._call(work)
        except (FileError, BadRequest) as error:
            raise os_error(error, path) from error
        except EndedByCode as error:
            raise OSError(errno.EIO, str(error), path) from error

    async def _call(self, work: Callable[[AsyncSandbox], Coroutine[Any, Any, Result]]) -> Result:
        """Call `work` with the sandbox; others' retries are theirs.

        Raises WorkspaceUnavailableError when it is gone, EndedByCode where commands of this object have ended it.
        """

        async def called() -> Result:
            box = self._box
            if box is None:
                async with self._lock:
                    box = self._box or await self._first_use()
            return await work(box)

        try:
            return await on_shared_loop(called)
        except (SandboxLost, NotFound) as error:
            if (
                self._box is not None
                and isinstance(error, SandboxLost)
                and (ended := ended_by_code(str(error), error.verdict))
            ):
                raise ended from error
            raise WorkspaceUnavailableError(f"the sandbox is gone: {error}") from error

    async def _first_use(self) -> AsyncSandbox:
        if self._ref is not None:
            box = await self._connected(self._ref.id)
        else:
            client = await default_client(url=self._url, api_key=self._api_key)
            box = await AsyncSandbox.create(**self._create, client=client)
            self._ref = WorkspaceRef(provider=PROVIDER, id=box.id)
        made = await box.exec(["sh", "-c", _MAKE, "sh", self._wanted_dir], stdin="")
        if not made.ok:
            raise WorkspaceError(f"working_dir: cannot make {self._wanted_dir}: {made.stderr.strip()}")
        self._working_dir = made.stdout.removesuffix("\n")
        self._box = box
        return box

    async def _connected(self, sandbox_id: str) -> AsyncSandbox:
        client = await default_client(url=self._url, api_key=self._api_key)
        try:
            box = await AsyncSandbox.connect(sandbox_id, client=client)
        except NotFound as error:
            raise WorkspaceUnavailableError(f"there is no sandbox {sandbox_id}: {error}") from error
        if box.info.ended:
            raise WorkspaceUnavailableError(f"sandbox {sandbox_id} has ended: {box.info.verdict}")
        return box


async def _nothing(_: AsyncSandbox) -> None:
    return None


def _entry(path: str, info: FileInfo) -> FileEntry:
    return FileEntry(
        name=posixpath.basename(posixpath.normpath(path)),
        path=path,
        is_dir=info.type == "dir",
        size=info.size if info.type == "file" else None,
    )
