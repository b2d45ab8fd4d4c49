"""Calls from the backend to a sidecar on this machine."""

from __future__ import annotations

from ...data.pool import Answer, HttpPool
from .entries import Entry


async def post(pool: HttpPool, entry: Entry, target: str, body: bytes, *, timeout: float) -> Answer:
    """Send a POST. Raises PoolError."""
    headers = [
        ("authorization", f"Bearer {entry.instance.token}"),
        ("content-type", "application/json"),
    ]
    return await pool.fetch(
        entry.instance.address, "POST", target, headers=headers, body=body, timeout=timeout
    )
