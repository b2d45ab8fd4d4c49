"""Clients that leave while a process does not read what they wrote: nothing goes on for them."""

from __future__ import annotations

import base64
import json
import socket
import time
from typing import Any

import pytest

from tests import plain_http
from tests.e2b.conftest import Box, enveloped
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

MUCH = base64.b64encode(bytes(1 << 20)).decode()  # more than a pipe holds
FULL_AFTER = 30  # seconds for which the sidecar waits for such a process


def in_flight(stack: Stack) -> float:
    key = {"Authorization": f"Bearer {stack.api_key}"}
    text = plain_http.get(f"{stack.url}/metrics", headers=key).text
    (line,) = [each for each in text.splitlines() if each.startswith('sandlot_in_flight{route="e2b"}')]
    return float(line.split()[-1])


@pytest.mark.parametrize("streams", [False, True])
def test_a_write_that_waits_ends_with_its_client(streams: bool, box: Box, stack: Stack) -> None:
    process = {"process": {"cmd": "/bin/sleep", "args": ["300"]}}
    headers = box.headers(**{"Content-Type": "application/connect+json"})
    with box.envd.stream(
        "POST", "/process.Process/Start", content=enveloped(process), headers=headers
    ) as told:
        first = next(told.iter_raw())
    selected: dict[str, Any] = {"process": {"pid": json.loads(first[5:])["event"]["start"]["pid"]}}
    data = {"input": {"stdin": MUCH}}
    body = json.dumps({**selected, **data}).encode()
    if streams:
        body = enveloped({"start": selected}) + enveloped({"data": data})
    method, kind = (
        ("StreamInput", "application/connect+json") if streams else ("SendInput", "application/json")
    )
    lines = {"Host": "x", **box.headers(), "Content-Type": kind, "Content-Length": str(len(body) + streams)}
    head = f"POST /e2b/process.Process/{method} HTTP/1.1\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", stack.port), timeout=60) as client:
        client.sendall(head.encode() + body)
        wait_until(lambda: in_flight(stack) == 1)
    left = time.monotonic()
    wait_until(lambda: in_flight(stack) == 0)
    assert time.monotonic() - left < FULL_AFTER - 10
    answer = box.rpc("process.Process/SendSignal", {**selected, "signal": 9})
    assert answer.status_code == 200
