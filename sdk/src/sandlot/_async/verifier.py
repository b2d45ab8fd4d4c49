"""Verifiers: score what an agent left in its sandbox by a command in another one that the agent never touched."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from sandlot._async.sandbox import AsyncSandbox
from sandlot._protocol import checks
from sandlot._protocol.checks import Command
from sandlot._tasks_async import ABANDONED, shielded
from sandlot.errors import FileMissing, FilesRefused, NotFound, SandlotError
from sandlot.models import CheckpointInfo, ExecResult

# Names that change how Python or pytest start: an agent that leaves one of them would run code in the verifier.
HOOKS = (
    "conftest.py",
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
    "*.pyc",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
)


class AsyncVerifier:
    """A command, and all that only it may see; `run` scores one sandbox after another with it.

    Each run is a new sandbox of the same image. It gets what the agent's code changed at or below `paths`, without
    names like one of `without`, and then `files` (absolute path: contents), in place of whatever is there. So its
    programs, libraries and settings are the image's own, and no process of the agent is in it. It has no network unless
    `create` says otherwise; `create` has arguments of `AsyncSandbox.create`, such as `secrets` or `memory`.

    The command still runs code of the agent if it imports or starts what is below `paths`. docs/verifier.md says what
    such a command has to do.
    """

    def __init__(
        self,
        command: Command,
        *,
        paths: Sequence[str],
        files: Mapping[str, str | bytes] | None = None,
        without: Sequence[str] = HOOKS,
        timeout: float | None = 300.0,
        env: Mapping[str, str] | None = None,
        cwd: str | None = "/",
        user: str | int | None = None,
        create: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the arguments; `timeout` is in seconds. Raises ValueError for one that is of no use."""
        self._paths = checks.words(paths, name="paths")
        if not self._paths:
            raise ValueError("paths: must name at least one directory or file that the agent hands in")
        self._command = command
        self._files = dict(files or {})
        for path in self._files:
            if path != posixpath.normpath(path) or not path.startswith("/") or path == "/":
                raise ValueError(f"files: {path!r} must be absolute, without '.', '..' and '//'")
        self._without = checks.words(without, name="without")
        self._timeout = timeout
        self._env = dict(env or {})
        self._cwd = cwd
        self._user = user
        self._create = {"network": "none", **(create or {})}

    async def run(self, box: AsyncSandbox) -> ExecResult:
        """Return the command's result for what is in `box`, which goes on undisturbed.

        Raises FilesRefused if the agent's files cannot be handed in (score it, usually 0), ValueError if the sandbox was
        created from a checkpoint, and SandboxLost as `exec` does, for either sandbox.
        """
        handed_in = await box.checkpoint(paths=self._paths, without=self._without)
        try:
            await _check_origin(handed_in, box)
            if handed_in.size > handed_in.disk:
                raise FilesRefused(
                    f"the files have {handed_in.size} bytes with their holes, more than the disk of {handed_in.disk}"
                )
            return await self._score(handed_in, box)
        finally:
            await shielded(lambda: _delete_checkpoint(handed_in, box))

    async def _score(self, handed_in: CheckpointInfo, box: AsyncSandbox) -> ExecResult:
        create: dict[str, Any] = {**self._create, "client": box.client}
        async with await AsyncSandbox.create(checkpoint=handed_in, **create) as verifier:
            for path, contents in self._files.items():
                await self._put(verifier, path, contents)
            return await verifier.exec(
                self._command, timeout=self._timeout, env=self._env, cwd=self._cwd, user=self._user
            )

    async def _put(self, verifier: AsyncSandbox, path: str, contents: str | bytes) -> None:
        """Write a file of the verifier; a link or pipe that the agent left on the way would lead it elsewhere."""
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            place = "/".join(parts[:end])
            kind = await _kind(verifier, place)
            if kind is None:
                break
            if end == len(parts) or (kind != "dir" and self._is_handed_in(place)):
                await verifier.files.remove(place, recursive=True)
                break
        await verifier.files.mkdir(posixpath.dirname(path), parents=True)
        await verifier.files.write(path, contents.encode() if isinstance(contents, str) else contents)

    def _is_handed_in(self, place: str) -> bool:
        return any(place == path or place.startswith(f"{path}/") for path in self._paths)


async def _kind(box: AsyncSandbox, path: str) -> str | None:
    """Return the type of what has this name, without following it; None if nothing has."""
    try:
        return (await box.files.stat(path, follow=False)).type
    except FileMissing:
        return None


async def _check_origin(handed_in: CheckpointInfo, box: AsyncSandbox) -> None:
    """Raise ValueError if the sandbox itself began with a checkpoint: the verifier's would have the image alone."""
    one = handed_in
    while one.parent_id is not None and one.sandbox_id == box.id:
        try:
            one = await AsyncSandbox.get_checkpoint(one.parent_id, client=box.client)
        except NotFound:
            break
    if one.depth > 0 or one.sandbox_id != box.id:
        raise ValueError(
            f"box: sandbox {box.id} began with checkpoint {one.id}, whose files a verifier would lack: "
            "create it from an image"
        )


async def _delete_checkpoint(checkpoint: CheckpointInfo, box: AsyncSandbox) -> None:
    try:
        await AsyncSandbox.delete_checkpoint(checkpoint.id, client=box.client)
    except (*ABANDONED, SandlotError):
        return
