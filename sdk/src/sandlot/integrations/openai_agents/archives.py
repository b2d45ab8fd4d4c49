"""Saves a session's workspace and brings it back: as a tar archive, or as a checkpoint of its sandbox."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import io
import shlex
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path

from agents.sandbox.session.tar_workspace import shell_tar_exclude_args

from sandlot._async.sandbox import AsyncSandbox
from sandlot.integrations._lost_commands import own_end

SPOOLED = 16 * 1024 * 1024  # bytes of an archive that stay in memory; a larger one is a file
_CHECKPOINT = b"SANDLOT_CHECKPOINT_V1\n"  # begins no tar archive


class TarFailed(Exception):
    """The sandbox's tar failed; the message is its own."""


async def checkpointed(box: AsyncSandbox, name: str) -> io.IOBase:
    """Save a checkpoint; return a reference to it."""
    made = await box.checkpoint(name=name)
    return io.BytesIO(_CHECKPOINT + made.id.encode())


def checkpoint_of(data: bytes) -> str | None:
    """Return the id of the checkpoint that `data` refers to; None: it is an archive."""
    return data.removeprefix(_CHECKPOINT).decode() if data.startswith(_CHECKPOINT) else None


async def packed(box: AsyncSandbox, root: str, skipped: Iterable[Path]) -> io.IOBase:
    """Return the files below `root` as a tar archive."""
    archive = _new_path()
    excluded = " ".join(shell_tar_exclude_args(skipped))
    try:
        await _tar(box, f"{excluded} -C {shlex.quote(root)} -cf {archive} .")
        file = tempfile.SpooledTemporaryFile(max_size=SPOOLED)  # noqa: SIM115 (the caller closes it)
        async for piece in box.files.stream(archive):
            file.write(piece)
    finally:
        await box.files.remove(archive, missing_ok=True)
    file.seek(0)
    # The sandbox's own tar may write anything: a reference would be restored as another sandbox's checkpoint.
    if file.read(len(_CHECKPOINT)) == _CHECKPOINT:
        file.close()
        raise TarFailed("the sandbox's tar wrote no archive, but a reference to a checkpoint")
    file.seek(0)
    return file


async def unpacked(box: AsyncSandbox, root: str, data: bytes) -> None:
    """Unpack an archive below `root`."""
    archive = _new_path()
    try:
        await box.files.write(archive, data)
        await _tar(box, f"-C {shlex.quote(root)} -xf {archive}")
    finally:
        await box.files.remove(archive, missing_ok=True)


async def _tar(box: AsyncSandbox, arguments: str) -> None:
    ended = own_end(await box.exec(["sh", "-c", f"tar {arguments}"], cwd="/", stdin=""), box.id)
    if not ended.ok:
        why = ended.stderr.strip()[-400:] or ended.message or "no output"
        raise TarFailed(f"tar ended with exit code {ended.exit_code}: {why}")


def _new_path() -> str:
    return f"/tmp/sandlot-workspace-{uuid.uuid4().hex}.tar"
