"""Reads objects of a bucket in ranges that are known to their ends, so that connections can be used again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from sandlot_gateway.checkpoints.errors import Damaged, StoreError, Trouble
from sandlot_gateway.checkpoints.s3.bucket import Bucket

_TRIES = 3  # of a read, each where the last one ended, with no byte in between
_PAUSE = 0.2  # seconds, doubled each time


class Receiving:
    """The bytes of an object from `offset` to `end`, in one request, and in another from where that one broke off."""

    def __init__(self, bucket: Bucket, key: str, *, end: int, offset: int = 0) -> None:
        self._bucket = bucket
        self._key = bucket.full_key(key)
        self._end = end
        self._offset = offset
        self._answer: BaseHTTPResponse | None = None
        if end > offset:
            self._retried(self._open)

    @property
    def offset(self) -> int:
        """Where the next byte is."""
        return self._offset

    @property
    def end(self) -> int:
        return self._end

    def read(self, size: int) -> bytes:
        """Return the next bytes. Raises FileNotFoundError, StoreError."""
        if self._offset >= self._end:
            return b""
        data = self._retried(lambda: self._next(size))
        self._offset += len(data)
        return data

    def close(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self._offset >= self._end:
            answer.release_conn()
        else:
            answer.close()

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
        data = self._answer.read(min(size, self._end - self._offset))
        if not data:
            raise StoreError("the store of checkpoints cut off an archive: try again, or tell the operator")
        return data

    def _open(self) -> bytes:
        headers = {"range": f"bytes={self._offset}-{self._end - 1}"}
        answer = self._bucket.http.once("GET", self._key, headers=headers)
        if answer.status == 404:
            answer.close()
            raise FileNotFoundError(2, "the checkpoint's archive was deleted")
        if answer.status == 416:
            answer.close()
            raise Damaged("a pack is shorter than what was written")
        if answer.status != 206 and (answer.status != 200 or self._offset):
            failure = self._bucket.http.failure("GET", answer.status, answer.read(1 << 16))
            answer.close()
            raise failure
        self._answer = answer
        return b""


class PackReading:
    """A pack that is read in `runs`, each from its begin to its end in one request; bytes in between may be left out."""

    def __init__(self, bucket: Bucket, key: str, *, runs: Sequence[tuple[int, int]] = ()) -> None:
        self._bucket = bucket
        self._key = key
        self._runs = iter(runs)
        self._receiving: Receiving | None = None

    def read_at(self, offset: int, size: int) -> bytes:
        """Return so many bytes. Raises FileNotFoundError, StoreError."""
        receiving = self._at(offset, size)
        data = bytearray()
        while len(data) < size and (piece := receiving.read(size - len(data))):
            data += piece
        return bytes(data)

    def close(self) -> None:
        if self._receiving is not None:
            self._receiving.close()
            self._receiving = None

    def _at(self, offset: int, size: int) -> Receiving:
        receiving = self._receiving
        if receiving is None or not receiving.offset <= offset <= offset + size <= receiving.end:
            self.close()
            begin, end = next(self._runs, (offset, offset + size))
            if not begin <= offset <= offset + size <= end:
                raise AssertionError(f"no run of {self._key} has {size} bytes from {offset} on")
            receiving = self._receiving = Receiving(self._bucket, self._key, offset=begin, end=end)
        while receiving.offset < offset and receiving.read(offset - receiving.offset):
            pass
        return receiving
