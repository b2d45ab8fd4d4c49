"""Writes packs into a bucket piece by piece, and reads them: no more than a part is in memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from sandlot_gateway.checkpoints.errors import Damaged, StoreError, Trouble
from sandlot_gateway.checkpoints.manifest import Manifest, read_manifest
from sandlot_gateway.checkpoints.rules import ABANDONED_AFTER
from sandlot_gateway.checkpoints.s3.bucket import Bucket

PART = 8 << 20  # bytes; a store takes 10,000 parts
_LARGER_FROM, _LARGER = 5000, 64 << 20
_MOST_PARTS = 10_000
_PREFIX = "archives/"
_SKIPPED = 1 << 20  # bytes that are read for nothing rather than with another request
_TRIES = 3  # of a read, each where the last one ended, with no byte in between
_PAUSE = 0.2  # seconds, doubled each time


class Sending:
    """A pack that is being written. One of less than one part is one request."""

    def __init__(self, bucket: Bucket, archive: str) -> None:
        self._bucket = bucket
        self._key = _key(archive)
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


class Receiving:
    """A pack, or an archive that is one object, that is read in one request from an offset on, and in another from where that
    one broke off.
    """

    def __init__(self, bucket: Bucket, archive: str, *, size: int, offset: int = 0) -> None:
        self._bucket = bucket
        self._key = bucket.full_key(_key(archive))
        self._size = size
        self._offset = offset
        self._answer: BaseHTTPResponse | None = None
        if size > offset:
            self._retried(self._open)

    @property
    def offset(self) -> int:
        """Where the next byte is."""
        return self._offset

    def read(self, size: int) -> bytes:
        """Return the next bytes. Raises FileNotFoundError, StoreError."""
        if self._offset >= self._size:
            return b""
        data = self._retried(lambda: self._next(size))
        self._offset += len(data)
        return data

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def _retried(self, call: Callable[[], bytes]) -> bytes:
        failure: StoreError | None = None
        for number in range(_TRIES):
            if failure is not None:
                time.sleep(_PAUSE * 2 ** (number - 1))
            try:
                return call()
            except HTTPError as error:
                failure = self._bucket.http.unreachable(error)
            except StoreError as error:
                if error.trouble is not Trouble.DOWN:
                    raise
                failure = error
            self.close()
        assert failure is not None
        raise failure

    def _next(self, size: int) -> bytes:
        if self._answer is None:
            self._open()
        assert self._answer is not None
        data = self._answer.read(min(size, self._size - self._offset))
        if not data:
            raise StoreError("the store of checkpoints cut off an archive: try again, or tell the operator")
        return data

    def _open(self) -> bytes:
        headers = {"range": f"bytes={self._offset}-"} if self._offset else {}
        answer = self._bucket.http.once("GET", self._key, headers=headers)
        if answer.status == 404:
            answer.close()
            raise FileNotFoundError(2, "the checkpoint's archive was deleted")
        if answer.status == 416:
            answer.close()
            raise Damaged("a pack is shorter than what was written")
        wanted = 206 if self._offset else 200
        if answer.status != wanted:
            failure = self._bucket.http.failure("GET", answer.status, answer.read(1 << 16))
            answer.close()
            raise failure
        self._answer = answer
        return b""


class PackReading:
    """A pack whose chunks are read in the order in which they were written, mostly: each is one request, for most of them."""

    def __init__(self, bucket: Bucket, pack: str, *, size: int) -> None:
        self._bucket = bucket
        self._pack = pack
        self._size = size
        self._receiving: Receiving | None = None

    def read_at(self, offset: int, size: int) -> bytes:
        """Return so many bytes, or fewer where the pack ends. Raises FileNotFoundError, StoreError."""
        receiving = self._at(offset)
        data = bytearray()
        while len(data) < size and (piece := receiving.read(size - len(data))):
            data += piece
        return bytes(data)

    def close(self) -> None:
        if self._receiving is not None:
            self._receiving.close()
            self._receiving = None

    def _at(self, offset: int) -> Receiving:
        """Return what is read from an offset on: the same request goes on over what other archives have."""
        receiving = self._receiving
        if receiving is not None and 0 <= offset - receiving.offset <= _SKIPPED:
            while receiving.offset < offset and receiving.read(offset - receiving.offset):
                pass
        if receiving is None or receiving.offset != offset:
            self.close()
            receiving = self._receiving = Receiving(self._bucket, self._pack, size=self._size, offset=offset)
        return receiving


class Archives:
    """Methods raise StoreError."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def begin(self, archive: str) -> Sending:
        return Sending(self._bucket, archive)

    def open(self, archive: str, *, size: int) -> Receiving:
        return Receiving(self._bucket, archive, size=size)

    def reading(self, pack: str, *, size: int) -> PackReading:
        """Return what reads a pack; no request is sent before the first read."""
        return PackReading(self._bucket, pack, size=size)

    def manifest(self, pack: str, *, size: int) -> Manifest:
        """Return the manifest of a pack. Raises Damaged, FileNotFoundError, too."""
        with contextlib.closing(self.reading(pack, size=size)) as reading:
            return read_manifest(size, reading.read_at)

    def size(self, archive: str) -> int | None:
        """Return the bytes of a complete archive, None if there is none."""
        return self._bucket.size(_key(archive))

    def delete(self, archive: str, *, complete: bool) -> None:
        """Delete an archive; `complete`: it is known to be, so it has no parts that nobody has put together."""
        self._bucket.delete(_key(archive))
        if not complete:
            for upload in self._bucket.uploads(_key(archive)):
                self._bucket.abort_upload(upload.key, upload.id)

    def sweep(self, known: Iterable[str], *, ids: Iterable[str]) -> None:
        """Delete old packs and parts but those of these names, and those of these checkpoints.

        The names must include every one of a document and every one that is held, the ids every checkpoint whose document
        cannot be read.
        """
        keys = {_key(one) for one in known}
        starts = tuple(f"{_PREFIX}{one}-" for one in ids)
        for found in self._bucket.list(_PREFIX):
            if found.key not in keys and not found.key.startswith(starts) and found.age > ABANDONED_AFTER:
                self._bucket.delete(found.key)
        for upload in self._bucket.uploads(_PREFIX):
            if upload.key not in keys and not upload.key.startswith(starts) and upload.age > ABANDONED_AFTER:
                with contextlib.suppress(StoreError):  # the next sweep repeats it
                    self._bucket.abort_upload(upload.key, upload.id)


def _key(archive: str) -> str:
    return f"{_PREFIX}{archive}.tar.gz"
