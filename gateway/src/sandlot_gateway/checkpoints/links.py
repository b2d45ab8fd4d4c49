"""Holds packs in a directory by hard links: a pack is there as long as one checkpoint's directory has it.

So the file system knows who needs a pack, whatever gateways delete and write at that moment, and whichever of them die.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.errors import Damaged
from sandlot_gateway.checkpoints.interface import OpenArchive
from sandlot_gateway.checkpoints.manifest import Manifest, read_manifest
from sandlot_gateway.checkpoints.packing import Holding, Known
from sandlot_gateway.checkpoints.places import Places
from sandlot_gateway.checkpoints.unpacking import Unpacking

_log = logging.getLogger(__name__)


class FileReading:
    """An archive that is one file, which stays readable after its delete."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()


class PackFile:
    """An open pack, which stays readable after its delete."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_at(self, offset: int, size: int) -> bytes:
        pieces: list[bytes] = []
        while size and (piece := os.pread(self._fd, size, offset)):
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        os.close(self._fd)


class Links:
    def __init__(self, places: Places) -> None:
        self._places = places

    def hold(self, checkpoint: Checkpoint, bases: Sequence[Checkpoint]) -> Known:
        """Hold packs of earlier checkpoints for one that is being written; return which chunks they have.

        What cannot be held or read is stored again.
        """
        holding = Holding()
        for base in bases:

            def size(pack: str, base: Checkpoint = base) -> int:
                return os.stat(self._places.pack(base, pack)).st_size

            def hold(pack: str, base: Checkpoint = base) -> bool:
                return self._linked(pack, base, checkpoint)

            try:
                holding.take(self._manifest(base), sizes=size, hold=hold)
            except FileNotFoundError:
                continue  # it was deleted meanwhile
            except OSError as error:
                _log.warning("no files of checkpoint %s are shared: %s", base.id, error)
        return holding.known

    def keep_only(self, checkpoint: Checkpoint, used: Collection[str]) -> None:
        """Let go of what a complete archive does not lie in. Raises OSError."""
        wanted = {"manifest", *(f"{pack}.pack" for pack in used)}
        files = self._places.files(checkpoint)
        for name in os.listdir(files):
            if name not in wanted:
                (files / name).unlink(missing_ok=True)

    def stored(self, checkpoint: Checkpoint) -> int:
        """Return the bytes that a complete archive added: its manifest, and its own pack."""
        size = os.stat(self._places.archive(checkpoint)).st_size
        if checkpoint.files:
            with contextlib.suppress(FileNotFoundError):  # all of it lies in earlier ones
                size += os.stat(self._places.pack(checkpoint, checkpoint.files)).st_size
        return size

    def open(self, checkpoint: Checkpoint) -> OpenArchive:
        """Open the archive of a checkpoint. Raises FileNotFoundError if it was deleted, and Damaged."""
        if not checkpoint.files:
            return FileReading(self._places.archive(checkpoint))
        manifest = self._manifest(checkpoint)
        archive = Unpacking(manifest, opened=lambda pack: PackFile(self._places.pack(checkpoint, pack)))
        try:
            archive.open_all()
        except FileNotFoundError as error:
            archive.close()
            os.stat(self._places.archive(checkpoint))  # else it was deleted meanwhile
            raise Damaged(f"{Path(error.filename).name} is missing") from error
        except BaseException:
            archive.close()
            raise
        return archive

    def _manifest(self, checkpoint: Checkpoint) -> Manifest:
        data = self._places.archive(checkpoint).read_bytes()
        return read_manifest(len(data), lambda offset, size: data[offset : offset + size])

    def _linked(self, pack: str, source: Checkpoint, target: Checkpoint) -> bool:
        """Link a pack of one checkpoint for another; return whether it stays now."""
        try:
            os.link(self._places.pack(source, pack), self._places.pack(target, pack))
        except FileExistsError:
            return True
        except (
            OSError
        ) as error:  # deleted meanwhile, or the file system has no links, or no more to this file
            _log.info("the pack %s is not shared: %s", pack, error)
            return False
        return True
