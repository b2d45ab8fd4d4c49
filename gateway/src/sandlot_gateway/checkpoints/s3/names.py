"""Keeps in which order the checkpoints with one name were completed: the order in which they entered one object."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor

import msgspec

from sandlot_gateway.checkpoints.s3.bucket import Bucket, Conflict, Object

_PREFIX = "names/"


class _Order(msgspec.Struct):
    archives: list[str] = []


class Names:
    """A checkpoint is in its name's order from the moment in which its archive is complete. Methods raise StoreError."""

    def __init__(self, bucket: Bucket, *, readers: Executor) -> None:
        self._bucket = bucket
        self._readers = readers

    def order(self, tenant: str, name: str) -> list[str]:
        """Return the archives of the completed checkpoints, the first one first."""
        found = self._bucket.get(_key(tenant, name))
        return _archives(found) if found is not None else []

    def add(self, tenant: str, name: str, archive: str) -> None:
        """Let an archive be the last one, unless it has a place."""
        self._change(_key(tenant, name), lambda known: known if archive in known else [*known, archive])

    def remove(self, tenant: str, name: str, archive: str) -> None:
        self._change(_key(tenant, name), lambda known: [one for one in known if one != archive])

    def all(self) -> dict[str, list[str]]:
        """Return all orders, for `sweep`."""
        keys = [listed.key for listed in self._bucket.list(_PREFIX)]
        found = list(self._readers.map(self._bucket.get, keys))
        return {one.key: _archives(one) for one in found if one is not None}

    def sweep(self, orders: Mapping[str, list[str]], *, known: Collection[str]) -> None:
        """Remove from orders what `known` lacks: the archives of all documents, read after the orders.

        The document is there before the place in an order, so what has a place and no document has lost it.
        """
        for key, archives in orders.items():
            lost = set(archives).difference(known)
            if lost:
                self._change(key, lambda found, lost=lost: [one for one in found if one not in lost])

    def _change(self, key: str, change: Callable[[list[str]], list[str]]) -> None:
        while True:
            found = self._bucket.get(key, patient=True)  # or a writer's complete archive would be lost
            known = _archives(found) if found is not None else []
            wanted = change(known)
            if wanted == known:
                return
            try:
                if found is None:
                    self._bucket.write(key, msgspec.json.encode(_Order(wanted)), over=None)
                elif wanted:
                    self._bucket.write(key, msgspec.json.encode(_Order(wanted)), over=found.etag)
                else:
                    self._bucket.delete_as(key, etag=found.etag)
            except Conflict:
                continue  # another gateway has changed it: one of all always succeeds
            return


def _key(tenant: str, name: str) -> str:
    return f"{_PREFIX}{hashlib.sha256(f'{tenant}/{name}'.encode()).hexdigest()[:40]}.json"


def _archives(found: Object) -> list[str]:
    try:
        return msgspec.json.decode(found.data, type=_Order).archives
    except msgspec.DecodeError:
        return []
