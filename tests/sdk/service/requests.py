"""A request as the server has read it, and what a handler answers to it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from tests.sdk.service.faults import Fault

Headers = dict[str, str]
Answer = tuple[int, object, Headers] | None  # None: the handler has written its answer itself


@dataclass
class Seen:
    """What a test finds of a request afterwards."""

    method: str
    path: str
    headers: Headers
    body: bytes


@dataclass
class Call:
    """What a handler gets of it. A parameter that comes twice has its first value in `query`."""

    method: str
    path: str
    query: dict[str, str]
    raw_query: str
    headers: Headers
    body: bytes
    writer: asyncio.StreamWriter
    fault: Fault | None
    whole: bool = False  # of an answer that the handler has written: the connection can be used again

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}
