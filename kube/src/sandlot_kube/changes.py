"""Changes one object only as it was read, and reads it again if another client changed it in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

import msgspec

from sandlot_kube.answers import read
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

_TRIES = 5  # attempts; each fails if another client changes the object at that moment
_PAUSE = 0.02  # seconds between two at most, twice as many after each; clients that begin together must not keep pace


class Instead(Enum):
    """What may become of an object instead of a change."""

    UNCHANGED = "unchanged"
    DELETED = "deleted"


# Gets the object as it is, None if there is none; returns all of it as it should be.
Decide = Callable[[bytes | None], Awaitable[dict[str, Any] | Instead]]


class Contended(Exception):
    """Other clients changed the object at each attempt."""


class _Metadata(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Versioned(msgspec.Struct):
    metadata: _Metadata


async def change(
    client: KubeClient, collection: str, name: str, decide: Decide, *, timeout: float = 10.0
) -> None:
    """Create, replace or delete an object. `timeout`: seconds for a request. Raises KubeError, Contended."""
    path = f"{collection}/{name}"
    last: KubeError | None = None
    for attempt in range(_TRIES):
        if attempt:
            await asyncio.sleep(random.uniform(0.0, _PAUSE * 2 ** (attempt - 1)))
        there = await _get(client, path, timeout=timeout)
        wanted = await decide(there)
        if wanted is Instead.UNCHANGED or (there is None and wanted is Instead.DELETED):
            return
        try:
            await _write(client, collection, path, wanted, there, timeout=timeout)
            return
        except KubeError as error:
            # 404 of an object that was there: another client has deleted it meanwhile.
            if error.status != 409 and (error.status != 404 or there is None):
                raise
            last = error
    raise Contended(f"other clients changed it {_TRIES} times meanwhile: {last}") from last


async def _get(client: KubeClient, path: str, *, timeout: float) -> bytes | None:
    try:
        return await client.request("GET", path, timeout=timeout)
    except KubeError as error:
        if error.status == 404:
            return None
        raise


async def _write(
    client: KubeClient,
    collection: str,
    path: str,
    wanted: dict[str, Any] | Instead,
    there: bytes | None,
    *,
    timeout: float,
) -> None:
    if there is None:
        await client.request("POST", collection, body=wanted, timeout=timeout)
        return
    version = {"resourceVersion": read(there, _Versioned).metadata.resource_version}
    if isinstance(wanted, Instead):
        # Only what was read: another client may have made it anew.
        await client.request("DELETE", path, body={"preconditions": version}, timeout=timeout)
    else:
        body = {**wanted, "metadata": {**wanted["metadata"], **version}}
        await client.request("PUT", path, body=body, timeout=timeout)
