"""Calls through the data plane to one sandbox."""

from __future__ import annotations

import json


async def ask(connection, method="POST", path="/exec", *, token, **options):
    connection.send(method, f"/sbx/sb-1{path}", token=token, **options)
    status, headers, body = await connection.answer()
    return status, headers, json.loads(body) if body[:1] == b"{" else body
