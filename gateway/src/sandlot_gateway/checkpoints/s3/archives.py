"""Writes packs into a bucket piece by piece, and reads them: no more than a part is in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from sandlot_gateway.checkpoints.errors import StoreError, Trouble
from sandlot_gateway.checkpoints.manifest import Manifest, read_manifest
from sandlot_gateway.checkpoints.rules import ABANDONED_AFTER
from sandlot_gateway.checkpoints.s3.bucket import Bucket
from sandlot_gateway.checkpoints.s3.receiving import PackReading, Receiving

PART = 8 << 20  # bytes; a store takes 10,000 parts
_LARGER_FROM, _LARGER = 5000, 64 << 20
_MOST_PARTS = 10_000
_PACKS = "chunks/"
_WHOLE = "archives/"  # of gateways before packs, which delete there what no document names as they know it


class Sending:
    """A pack that is being written. One of less than one part is one request."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._buffer = bytearray()
        self._upload: str | None = None
        self._etags: list[str] = []

    def write(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= (size := PART if len(self._etags) < _LARGER_FROM else _LARGER):
            self._send(size)

    def complete(self) -> None:
        """Let the archive appear, with all of its bytes."""
        if self._upload is None:
            self._bucket.put(self._key, bytes(self._buffer))
        else:
            if self._buffer:
                self._send(len(self._buffer))
            self._bucket.complete_upload(self._key, self._upload, etags=self._etags)
        self._buffer.clear()

    def abort(self) -> None:
        """Leave no part behind."""
        self._buffer.clear()
        if self._upload is not None:
            self._bucket.abort_upload(self._key, self._upload)

    def _send(self, size: int) -> None:
        if len(self._etags) == _MOST_PARTS:
            text = f"an archive in S3 has at most {_MOST_PARTS} parts, this one needs more: save fewer files"
            raise StoreError(text, trouble=Trouble.REFUSED)
        if self._upload is None:
            self._upload = self._bucket.begin_upload(self._key)
        piece = bytes(memoryview(self._buffer)[:size])
        number = len(self._etags) + 1
        self._etags.append(self._bucket.put_part(self._key, self._upload, number=number, data=piece))
        del self._buffer[:size]


class Archives:
    """Packs, and the whole archives of gateways before these, which those delete as they like. Methods raise StoreError."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def begin(self, pack: str) -> Sending:
        return Sending(self._bucket, _pack(pack))

    def open_whole(self, archive: str, *, size: int) -> Receiving:
        """Open a whole archive. Raises FileNotFoundError, too."""
        return Receiving(self._bucket, _whole(archive), end=size)

    def reading(self, pack: str, *, runs: Sequence[tuple[int, int]]) -> PackReading:
        """Return what reads a pack; no request is sent before the first read."""
        return PackReading(self._bucket, _pack(pack), runs=runs)

    def manifest(self, pack: str, *, size: int) -> Manifest:
        """Return the manifest of a pack. Raises Damaged, FileNotFoundError, too."""
        with contextlib.closing(PackReading(self._bucket, _pack(pack))) as reading:
            return read_manifest(size, reading.read_at)

    def size(self, archive: str, *, packed: bool) -> int | None:
        """Return the bytes of a complete pack, or of a complete whole archive; None if there is none."""
        return self._bucket.size(_pack(archive) if packed else _whole(archive))

    def delete(self, pack: str, *, complete: bool) -> None:
        """Delete a pack; `complete`: it is known to be, so it has no parts that nobody has put together."""
        self._delete(_pack(pack), complete=complete)

    def delete_whole(self, archive: str, *, complete: bool) -> None:
        """Delete a whole archive, as `delete`."""
        self._delete(_whole(archive), complete=complete)

    def sweep(self, known: Iterable[str], *, ids: Iterable[str]) -> None:
        """Delete old packs, whole archives and parts but those of these names, and those of these checkpoints.

        The names must include every one of a document and every one that is held, the ids every checkpoint whose document
        cannot be read.
        """
        keys = {key for one in known for key in (_pack(one), _whole(one))}
        for prefix in (_PACKS, _WHOLE):
            starts = tuple(f"{prefix}{one}-" for one in ids)
            for found in self._bucket.list(prefix):
                if found.key not in keys and not found.key.startswith(starts) and found.age > ABANDONED_AFTER:
                    self._bucket.delete(found.key)
            for upload in self._bucket.uploads(prefix):
                if (
                    upload.key not in keys
                    and not upload.key.startswith(starts)
                    and upload.age > ABANDONED_AFTER
                ):
                    with contextlib.suppress(StoreError):  # the next sweep repeats it
                        self._bucket.abort_upload(upload.key, upload.id)

    def _delete(self, key: str, *, complete: bool) -> None:
        self._bucket.delete(key)
        if not complete:
            for upload in self._bucket.uploads(key):
                self._bucket.abort_upload(upload.key, upload.id)


def _pack(pack: str) -> str:
    return f"{_PACKS}{pack}.pack"


def _whole(archive: str) -> str:
    return f"{_WHOLE}{archive}.tar.gz"
