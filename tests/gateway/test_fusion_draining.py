"""A draining gateway reads a large body of SandboxFusion's API to its end: a reset in place of the 504 is no retry."""

from __future__ import annotations

import asyncio
from typing import Any

from sandlot_gateway.edge import Clients, Edge
from sandlot_gateway.inside import Inside


class _Fusion:
    max_body = 32 << 20

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("a draining gateway runs no new code")


async def _other(scope: Any, receive: Any, send: Any, **_options: Any) -> None:
    raise AssertionError("not a path of SandboxFusion's API")


async def test_a_large_body_is_read_to_its_end_and_answered_504() -> None:
    recovered = asyncio.Event()
    recovered.set()
    edge = Edge(
        data=_other,
        control=_other,
        fusion=_Fusion(),
        recovered=recovered,
        max_body=2 << 20,
        counted=lambda status: None,
        refusal=lambda scope: None,
        is_known=lambda scope: True,
        audit=None,
        inside=Inside(),
    )
    await edge.drain(Clients.ALL, timeout=0.0)
    left = 8
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": left > 0}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "scheme": "http", "method": "POST", "path": "/run_code", "headers": []}
    await edge(scope, receive, send)
    assert sent[0]["status"] == 504
    assert left == 0
