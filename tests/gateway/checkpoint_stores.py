"""Both stores of checkpoints for the tests of what all stores promise: a directory, and a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.interface import CheckpointStore, Writing
from sandlot_gateway.checkpoints.part import Part
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.s3.records import Record
from sandlot_gateway.checkpoints.s3.store import S3Store
from sandlot_gateway.checkpoints.s3.writing import S3Part
from sandlot_gateway.checkpoints.store import Store

from tests.s3.server import S3Server, s3_server

__all__ = ["s3_server"]

STORES = ("directory", pytest.param("s3", marks=pytest.mark.programs))


class Stores(Protocol):
    """One place that gateways share."""

    def open(self, **limits: Any) -> CheckpointStore:
        """A gateway's own view of it."""
        ...

    def later(self, **limits: Any) -> CheckpointStore:
        """The view of a gateway that looks so late that writers which are dead are known to be."""
        ...

    def cut_short(self, checkpoint: Checkpoint, part: Writing) -> None:
        """Let the writer die after the archive is complete, before it writes the document."""
        ...

    def rewrite(self, checkpoint: Checkpoint, part: Writing | None = None) -> None:
        """Write a document as it is given, as its writer if there is one."""
        ...

    def damage(self, checkpoint: Checkpoint, how: str) -> None:
        """Damage the pack of a checkpoint: one byte has "changed", its end is "cut", or it is "gone"."""
        ...

    def left(self) -> set[str]:
        """The ids of which anything is left."""
        ...


def damaged(data: bytes, how: str) -> bytes | None:
    middle = len(data) // 2
    return {
        "changed": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "cut": data[:middle],
        "gone": None,
    }[how]


class Directory:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, **limits: Any) -> Store:
        return Store(self.directory, limits=StoreLimits(**limits))

    later = open

    def cut_short(self, checkpoint: Checkpoint, part: Writing) -> None:
        assert isinstance(part, Part)
        part.complete()
        part.path.rename(part.path.with_name("manifest"))
        part.close()

    def rewrite(self, checkpoint: Checkpoint, part: Writing | None = None) -> None:
        (self.directory / f"{checkpoint.id}.json").write_bytes(msgspec.json.encode(checkpoint))

    def damage(self, checkpoint: Checkpoint, how: str) -> None:
        (pack,) = self.directory.glob(f"{checkpoint.id}.packs.*/{checkpoint.id}-*.pack")
        data = damaged(pack.read_bytes(), how)
        for path in self.directory.glob(f"*/{pack.name}"):  # also the links of others
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)

    def left(self) -> set[str]:
        return {path.name.partition(".")[0] for path in self.directory.iterdir()}


class InBucket:
    def __init__(self, server: S3Server) -> None:
        self._server = server
        self.place = server.place()
        self._opened: list[S3Store] = []
        self._own = self.open()

    def open(self, *, dead_after: float = 600.0, **limits: Any) -> S3Store:
        store = S3Store(
            self.place,
            limits=StoreLimits(**limits),
            credentials=self._server.credentials,
            dead_after=dead_after,
            renew_every=0.0,  # so that a writer learns of everything at its next write
        )
        self._opened.append(store)
        return store

    def later(self, **limits: Any) -> S3Store:
        return self.open(dead_after=0.0, **limits)

    def cut_short(self, checkpoint: Checkpoint, part: Writing) -> None:
        assert isinstance(part, S3Part)
        part.complete()
        part.close()

    def rewrite(self, checkpoint: Checkpoint, part: Writing | None = None) -> None:
        if isinstance(part, S3Part):
            part.record.checkpoint = checkpoint
            part.renew(now=True)
            return
        key = f"documents/{checkpoint.id}.json"
        found = self._own.bucket.get(key)
        assert found is not None
        record = msgspec.json.decode(found.data, type=Record)
        record.checkpoint = checkpoint
        self._own.bucket.put(key, msgspec.json.encode(record))

    def damage(self, checkpoint: Checkpoint, how: str) -> None:
        bucket = self._own.bucket
        (listed,) = bucket.list(f"chunks/{checkpoint.id}-")
        found = bucket.get(listed.key)
        assert found is not None
        data = damaged(found.data, how)
        if data is None:
            bucket.delete(listed.key)
        else:
            bucket.put(listed.key, data)

    def left(self) -> set[str]:
        bucket = self._own.bucket
        keys = [one.key for one in bucket.list("")] + [one.key for one in bucket.uploads("")]
        return {key.rpartition("/")[2].partition(".")[0][:27] for key in keys}

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    if request.param == "directory":
        yield Directory(request.getfixturevalue("tmp_path"))
        return
    bucket = InBucket(request.getfixturevalue("s3_server"))
    yield bucket
    bucket.close()


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[InBucket]:
    found = InBucket(s3_server)
    yield found
    found.close()
