"""Records which checkpoints need a pack in a bucket, in one object for each pack, changed only by conditional writes.

A pack's writer makes the object before the pack is there, and nobody makes it again. Who takes the last checkpoint out of
it deletes it, on condition that nobody has entered another one, and then deletes the pack: so a pack whose object has a
checkpoint stays, and one without an object is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from sandlot_gateway.checkpoints.s3.bucket import Conflict, Object

_PREFIX = "packs/"
_MOST = 4096  # checkpoints, so that the object stays small


class Objects(Protocol):
    """What this needs of a bucket. Methods raise StoreError."""

    def get(self, key: str, *, patient: bool = False) -> Object | None: ...

    def write(self, key: str, data: bytes, *, over: str | None) -> str: ...

    def delete_as(self, key: str, *, etag: str) -> None: ...

    def list(self, prefix: str) -> Iterator[Object]: ...


class _Users(msgspec.Struct):
    users: list[str]  # the packs of the checkpoints


class Holders:
    """A checkpoint is named by its own pack, since a later one may have its id. Methods raise StoreError."""

    def __init__(self, bucket: Objects) -> None:
        self._bucket = bucket

    def create(self, pack: str) -> None:
        """Enter a pack of this gateway's own that it is about to write, with its own checkpoint."""
        try:
            self._bucket.write(_key(pack), _encoded([pack]), over=None)
        except Conflict:
            pass  # a try of this call whose answer was lost

    def enter(self, pack: str, user: str) -> bool:
        """Let a pack stay for a checkpoint; return False if it is gone, or has too many."""
        while (found := self._bucket.get(_key(pack), patient=True)) is not None:
            users = _users(found)
            if user in users:
                return True
            if not users or len(users) >= _MOST:
                return False  # or it cannot be read
            try:
                self._bucket.write(_key(pack), _encoded([*users, user]), over=found.etag)
            except Conflict:
                continue  # another gateway has changed it: one of all always succeeds
            return True
        return False

    def leave(self, pack: str, user: str) -> bool:
        """Take a checkpoint out; return True if the caller has to delete the pack, since nobody needs it any more."""
        while (found := self._bucket.get(_key(pack), patient=True)) is not None:
            users = _users(found)
            left = [one for one in users if one != user]
            if left == users:
                return False  # also where it cannot be read: the pack stays until no document names it
            try:
                if left:
                    self._bucket.write(_key(pack), _encoded(left), over=found.etag)
                else:
                    self._bucket.delete_as(_key(pack), etag=found.etag)
            except Conflict:
                continue
            return not left
        return (
            pack == user
        )  # nobody else can have entered it, or whoever took the last one out died before the delete

    def listed(self) -> list[tuple[str, Object]]:
        """Return all packs that somebody needs or needed, with their objects, for `give_up`."""
        return [
            (one.key.removeprefix(_PREFIX).removesuffix(".json"), one) for one in self._bucket.list(_PREFIX)
        ]

    def give_up(self, pack: str, found: Object) -> bool:
        """Let a pack go that no document names, unless somebody has entered it since it was found; return whether it went."""
        try:
            self._bucket.delete_as(_key(pack), etag=found.etag)
        except Conflict:
            return False
        return True


def _key(pack: str) -> str:
    return f"{_PREFIX}{pack}.json"


def _encoded(users: list[str]) -> bytes:
    return msgspec.json.encode(_Users(users))


def _users(found: Object) -> list[str]:
    """Return who needs a pack; nobody, where it cannot be read."""
    try:
        return msgspec.json.decode(found.data, type=_Users).users
    except msgspec.DecodeError:
        return []
