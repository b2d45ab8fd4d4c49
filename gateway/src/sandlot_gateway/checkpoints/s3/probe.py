"""Finds out whether a store has the conditional writes without which several gateways would overwrite each other."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sandlot_gateway.checkpoints.errors import StoreError, Trouble
from sandlot_gateway.checkpoints.s3.bucket import Bucket, Conflict


def probe(bucket: Bucket) -> None:
    """Write an object, try what must be refused, and delete it. Raises StoreError."""
    key = f"probes/{secrets.token_hex(8)}"
    etag = _written(bucket, key, over=None)
    try:
        _refused("If-None-Match", lambda: bucket.write(key, b"second", over=None))
        _refused("If-Match", lambda: bucket.write(key, b"third", over='"00000000000000000000000000000000"'))
        other = _written(bucket, key, over=etag)
        _refused("If-Match of a delete", lambda: bucket.delete_as(key, etag=etag))
        bucket.delete_as(key, etag=other)
    except Conflict as error:
        raise _changed() from error
    finally:
        bucket.delete(key)
    next(bucket.uploads("archives/"), None)


def _written(bucket: Bucket, key: str, *, over: str | None) -> str:
    """Write something new, and return its ETag, also of a write whose answer was lost. Raises StoreError."""
    data = secrets.token_hex(8).encode()
    try:
        return bucket.write(key, data, over=over)
    except Conflict as error:
        found = bucket.get(key)
        if found is None or found.data != data:
            raise _changed() from error
        return found.etag


def _refused(condition: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Conflict:
        return
    raise StoreError(
        f"the store of checkpoint_s3 ignores {condition}, so gateways would overwrite each other's checkpoints: use"
        " one with conditional writes and deletes, such as Amazon S3, or a directory (checkpoint_dir)",
        trouble=Trouble.REFUSED,
    )


def _changed() -> StoreError:
    return StoreError(
        "the store of checkpoint_s3 refuses a conditional write of an object that nobody else writes: try again, or"
        " tell the operator"
    )
