# This file is auto-generated from sdk/src/sandlot/_async/verifier.py by tools/async_to_sync.py: do not change it.
"""Verifiers: score what an agent left in its sandbox by a command in another one that the agent never touched."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from sandlot._protocol import checks
from sandlot._protocol.checks import Command
from sandlot._sync.checkpoints import written
from sandlot._sync.sandbox import Sandbox
from sandlot._tasks_sync import shielded
from sandlot.errors import DiskFull, FileMissing, FilesRefused, SandboxLost, SandlotError
from sandlot.models import CheckpointInfo, ExecResult

# Names that change how Python or pytest start: an agent that leaves one of them would run code in the verifier.
HOOKS = (
    "conftest.py",
    "sitecustomize",
    "sitecustomize.*",
    "usercustomize",
    "usercustomize.*",
    "pyvenv.cfg",
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
# Bytes that an entry may take besides its contents: the rest of a block of data and of one of attributes, an inode, and
# a name of 255 bytes in a directory that is half full.
BESIDES = 2 * 4096 + 2048
SPARE = 16 << 20  # bytes of the disk for the verifier's own files and the command's
WRITTEN = 300.0  # seconds
# How a start fails because of the files that were handed in; a damaged archive, and a full disk of the node, say
# something else.
UNFIT = ("the archive exceeds the sandbox's disk", "the archive has an attribute that cannot be set")


class Verifier:
    """A command, and all that only it may see; `run` scores one sandbox after another with it.

    Each run is a new sandbox of the same image. It gets what the agent's code changed at or below `paths`, without
    names like one of `without`, and then `files` (absolute path: contents), in place of whatever is there. Only `user`,
    by default root, whom the command runs as, can read them. So its programs, libraries and settings are the image's
    own, and no process of the agent is in it. It has no network unless `create` says otherwise; `create` has arguments of `Sandbox.create`, such as `secrets` or `memory`.

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
        user: str | int = 0,
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

    def run(self, box: Sandbox) -> ExecResult:
        """Return the command's result for what is in `box`, which goes on undisturbed.

        Raises FilesRefused if the agent's files cannot be handed in (score it, usually 0), ValueError if the sandbox was
        created from a checkpoint, and SandboxLost as `exec` does, for either sandbox.
        """
        begun = box.checkpoint(paths=self._paths, without=self._without, wait=0)
        try:
            if begun.origin_id is not None:
                raise ValueError(
                    f"box: sandbox {box.id} began with checkpoint {begun.origin_id}, whose files a verifier would lack, "
                    "since an agent may have written them: create it from an image that has them"
                )
            handed_in = written(begun, wait=WRITTEN, client=box.client)
            _check_room(handed_in)
            return self._score(handed_in, box)
        finally:
            shielded(lambda: _delete_checkpoint(begun, box))

    def _score(self, handed_in: CheckpointInfo, box: Sandbox) -> ExecResult:
        create: dict[str, Any] = {**self._create, "client": box.client}
        try:
            made = Sandbox.create(checkpoint=handed_in, **create)
        except SandboxLost as error:
            if error.verdict == "start_failed" and any(text in str(error) for text in UNFIT):
                raise FilesRefused(f"the files cannot be handed in: {error}") from error
            raise
        with made as verifier:
            try:
                for path, contents in self._files.items():
                    self._put(verifier, path, contents)
            except DiskFull as error:
                # The room was checked, so it is the node's disk.
                text = f"the verifier's disk is full: {error}"
                raise SandboxLost(text, verdict="sandbox_broken", sandbox_id=verifier.id) from error
            return verifier.exec(
                self._command, timeout=self._timeout, env=self._env, cwd=self._cwd, user=self._user
            )

    def _put(self, verifier: Sandbox, path: str, contents: str | bytes) -> None:
        """Write a file of the verifier; a link or pipe that the agent left on the way would lead it elsewhere."""
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            place = "/".join(parts[:end])
            kind = _kind(verifier, place)
            if kind is None:
                break
            if end == len(parts) or (kind != "dir" and self._is_handed_in(place)):
                verifier.files.remove(place, recursive=True)
                break
        verifier.files.mkdir(posixpath.dirname(path), parents=True)
        # The agent's code may run here as another user, who must not read what it is compared with.
        data = contents.encode() if isinstance(contents, str) else contents
        verifier.files.write(path, data, mode=0o600, owner=self._user)

    def _is_handed_in(self, place: str) -> bool:
        return any(place == path or place.startswith(f"{path}/") for path in self._paths)


def _kind(box: Sandbox, path: str) -> str | None:
    """Return the type of what has this name, without following it; None if nothing has."""
    try:
        return (box.files.stat(path, follow=False)).type
    except FileMissing:
        return None


def _check_room(handed_in: CheckpointInfo) -> None:
    """Raise FilesRefused if the verifier's disk has no room for the files and what comes besides."""
    need = handed_in.size + BESIDES * handed_in.entries
    room = max(handed_in.disk - SPARE, handed_in.disk // 2)
    if need > room:
        raise FilesRefused(
            f"the files need {need} bytes with their holes and names, more than the {room} of a disk of {handed_in.disk}"
        )


def _delete_checkpoint(checkpoint: CheckpointInfo, box: Sandbox) -> None:
    """Delete it, also while it is being written: the server never deletes one of its own accord."""
    try:
        Sandbox.delete_checkpoint(checkpoint.id, client=box.client)
    except SandlotError:
        return
