"""Starts the app of `port_app.py` in a sandbox, and asks it at its host name."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests import plain_http
from tests.e2b.conftest import DOMAIN, Box, enveloped
from tests.stack import Stack

PROGRAM = Path(__file__).with_name("port_app.py")


@dataclass(frozen=True)
class App:
    box: Box
    port: int
    stack: Stack

    @property
    def host(self) -> str:
        return f"{self.port}-{self.box.id}.{DOMAIN}"

    def ask(
        self, path: str = "/", *, method: str = "GET", host: str | None = None, **options: Any
    ) -> httpx.Response:
        headers = {"Host": host or self.host, **options.pop("headers", {})}
        return plain_http.request(method, f"{self.stack.url}{path}", headers=headers, timeout=60, **options)

    def told(self, path: str = "/", **options: Any) -> dict[str, Any]:
        """What the app got of a request; of headers the last one of a name."""
        answer = self.ask(path, **options)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        return {**told, "headers": {name.lower(): value for name, value in told["headers"]}}


def started(box: Box, stack: Stack) -> App:
    headers = box.headers(**{"Content-Type": "application/octet-stream"})
    path = f"/tmp/{box.id}.py"
    assert box.envd.post(
        "/files", params={"path": path}, content=PROGRAM.read_bytes(), headers=headers
    ).is_success
    document = {"process": {"cmd": "/bin/sh", "args": ["-c", f"exec python3 {path}"]}, "stdin": False}
    headers = box.headers(**{"Content-Type": "application/connect+json"})
    with box.envd.stream(
        "POST", "/process.Process/Start", content=enveloped(document), headers=headers
    ) as answer:
        text = ""
        for piece in answer.iter_raw():
            text += piece.decode("latin-1")
            if found := re.search(r'"stdout":"([^"]+)"', text):
                return App(box, int(base64.b64decode(found[1])), stack)
    raise AssertionError(text)


def code_of(answer: httpx.Response) -> tuple[int, str | None]:
    """The status and which refusal of the gateway it is; None: the app answered."""
    return answer.status_code, answer.headers.get("x-sandlot-refusal")


def document(answer: httpx.Response) -> dict[str, Any]:
    return json.loads(answer.text)
