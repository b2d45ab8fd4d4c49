"""Opens a layer's blob as an uncompressed tar and checks its digest once it has been read."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from .errors import ImageError
from .layout import Layer, Source, open_blob

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class _Hashed(io.RawIOBase):
    """A stream that hashes all that is read from it."""

    def __init__(self, inner: IO[bytes]) -> None:
        self._inner = inner
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        self._hash.update(data)
        buffer[: len(data)] = data
        return len(data)

    def drain(self) -> str:
        while data := self._inner.read(1 << 20):
            self._hash.update(data)
        return "sha256:" + self._hash.hexdigest()


@contextmanager
def layer_stream(source: Source, layer: Layer) -> Iterator[IO[bytes]]:
    """Open the layer's tar. Raises ImageError for bad compression and, at the end, a wrong digest."""
    with open_blob(source, layer.digest) as blob:
        hashed = _Hashed(blob)
        buffered = io.BufferedReader(hashed, 1 << 20)
        start = buffered.peek(4)[:4]
        try:
            if start.startswith(_GZIP):
                with gzip.GzipFile(fileobj=buffered) as stream:
                    yield cast("IO[bytes]", stream)
            elif start == _ZSTD:
                with _zstd(buffered) as stream:
                    yield stream
            else:
                yield buffered
        except (zlib.error, gzip.BadGzipFile, EOFError) as error:
            raise ImageError(f"{source.name}: the layer {layer.digest} is damaged: {error}") from error
        if hashed.drain() != layer.digest:
            raise ImageError(
                f"{source.name}: the layer {layer.digest} has other contents than its digest says"
            )


@contextmanager
def _zstd(stream: Any) -> Iterator[IO[bytes]]:
    # Here, because most gateways never see such a layer.
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    try:
        with zstd.ZstdFile(stream) as found:
            yield cast("IO[bytes]", found)
    except zstd.ZstdError as error:
        raise EOFError(str(error)) from error
