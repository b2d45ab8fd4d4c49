"""The members of a backup's archive: JSON, read in an amount of memory that no file exceeds, however hostile."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .items import BadBackup

MANIFEST, VALUES = "manifest.json", "values.json"
RESOURCES, SECRETS = "resources.jsonl", "secrets.jsonl"  # a resource a line
MOST_BYTES = {MANIFEST: 1 << 20, VALUES: 8 << 20, RESOURCES: 512 << 20, SECRETS: 64 << 20}
_LINE = 4 << 20  # bytes; the API server stores objects of at most about 3 MB
_REST = 1 << 20  # bytes of zeros after the last member
# A value of JSON may take 30 times the memory of its text, and one emoji makes each character of its string four bytes.
_MOST_VALUES = 1_000_000
_MOST_ESCAPED = 64 << 20  # bytes of lines with an escape


def document(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def lines(values: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def members_of(path: Path) -> tuple[dict[str, object], dict[str, str]]:
    """Return what the members have (None: no JSON), and their SHA-256. Nothing is unpacked to the disk.

    Raises BadBackup, and OSError.
    """
    try:
        with gzip.open(path) as file:
            return _read(path, file)
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise BadBackup(
            f"{path} is no whole backup of Sandlot ({error}): use another one, or copy it again"
        ) from error


def _read(path: Path, file: gzip.GzipFile) -> tuple[dict[str, object], dict[str, str]]:
    """Read plain files only. `tarfile.open` would obey extended headers: sparse files, other sizes, other names."""
    found: dict[str, object] = {}
    digests: dict[str, str] = {}
    budget = _Budget(path)
    while (header := file.read(tarfile.BLOCKSIZE)).strip(b"\0"):
        entry = tarfile.TarInfo.frombuf(header, "utf-8", "replace")
        name = entry.name
        known = name in MOST_BYTES.keys() - found.keys() and entry.type == tarfile.REGTYPE
        if not known or not 0 <= entry.size <= MOST_BYTES[name]:
            raise BadBackup(f"{path} has an entry that no backup has: do not restore this file")
        digest = hashlib.sha256()
        pieces = _pieces(file, entry.size, whole=name in (MANIFEST, VALUES), path=path)
        parsed: list[object] = []
        for piece in pieces:
            digest.update(piece)
            budget.spend(piece)
            parsed.append(_json(piece))
        found[name] = parsed if name in (RESOURCES, SECRETS) else next(iter(parsed), None)
        digests[name] = digest.hexdigest()
        file.read(-entry.size % tarfile.BLOCKSIZE)
    rest = file.read(_REST)  # to the end of the file, which has its checksum
    if rest.strip(b"\0") or file.read(1):
        raise BadBackup(f"{path} has more than a backup: do not restore this file")
    if not found:
        raise EOFError("it is empty")
    return found, digests


def _pieces(file: gzip.GzipFile, size: int, *, whole: bool, path: Path) -> Iterator[bytes]:
    """Yield the next `size` bytes, or line by line."""
    while size > 0:
        piece = file.read(size) if whole else file.readline(min(size, _LINE))
        size -= len(piece)
        if not piece or not (whole or piece.endswith(b"\n")):
            raise BadBackup(f"{path} has a resource that is cut, or too large: use another backup")
        yield piece


class _Budget:
    """What the JSON of one file may take of memory, by its text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = _MOST_VALUES
        self._escaped = _MOST_ESCAPED

    def spend(self, text: bytes) -> None:
        """Count a piece that will be parsed. Raises BadBackup for more than a backup needs."""
        # Each value follows one of these; in a text of base64 there are none.
        self._values -= sum(map(text.count, (b",", b"[", b"{")))
        if b"\\" in text or not text.isascii():
            self._escaped -= len(text)
        if self._values < 0 or self._escaped < 0:
            raise BadBackup(
                f"{self._path} would take more memory than a backup needs: do not restore this file"
            )


def _json(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
