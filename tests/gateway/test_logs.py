"""Every line is one JSON object that names its request, sandbox and op; no line holds a credential."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from sandlot_gateway import logs

from tests.gateway.conftest import KEY, running
from tests.waiting import until


class ConnectionQueues:
    """What the gateway would write to stderr; the test's own client logs too."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(logs.JsonFormatter())
        self.handler.addFilter(lambda record: record.name.startswith("sandlot"))

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def of(self, logger: str) -> list[dict]:
        parsed = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in parsed if line["logger"] == logger]


@pytest.fixture
def lines() -> Iterator[ConnectionQueues]:
    found = ConnectionQueues()
    root = logging.getLogger()
    level = root.level
    root.addHandler(found.handler)
    root.setLevel(logging.DEBUG)
    yield found
    root.removeHandler(found.handler)
    root.setLevel(level)


async def test_a_command_s_line_names_request_sandbox_and_op(
    state_dir, machine, lines: ConnectionQueues
) -> None:
    async with running(state_dir, machine, access_log=1.0) as box:
        made = await box.create(secrets={"S": "a-secret-value"})
        token = made["gatewayAuth"]["token"]
        await box.client.post(
            f"/sbx/{made['id']}/exec",
            json={"command": "hello"},
            headers={"Authorization": f"Bearer {token}", "X-Request-Id": "r-1", "X-Sandlot-Op": "the-op"},
        )
        await box.client.get("/sbx/none/exec")
        (first, second) = await until(
            lambda: found if len(found := lines.of("sandlot.access")) == 2 else None
        )
        assert (first["request"], first["sandbox"], first["op"]) == ("r-1", made["id"], "the-op")
        assert (first["method"], first["route"], first["status"]) == ("POST", "exec", 200)
        assert first["ms"] >= first["queued_ms"] == 0
        assert (second["status"], second["sandbox"]) == (502, "none")
        assert second["request"]
        assert "op" not in second
        await box.client.delete(f"/api/v1/sandbox/{made['id']}", headers={"X-Request-Id": "r-2"})
        (ended,) = [
            line for line in lines.of("sandlot_gateway.engine.ends") if line["message"] == "a sandbox ended"
        ]
        assert (ended["sandbox"], ended["verdict"], ended["request"]) == (made["id"], "deleted", "r-2")
        await until(
            lambda: {"POST", "DELETE"} <= {line["method"] for line in lines.of("sandlot_gateway.edge")}
        )
        controlled = lines.of("sandlot_gateway.edge")
        assert all(line["request"] for line in controlled)
    for secret in (KEY, token, "a-secret-value"):
        assert secret not in lines.text


def test_an_exception_and_odd_values_are_one_line(lines: ConnectionQueues) -> None:
    log = logging.getLogger("sandlot.test")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it \n failed", extra={"thing": object()})
    (line,) = lines.of("sandlot.test")
    assert line["level"] == "error"
    assert "ValueError: two\nlines" in line["error"]
    assert "object object" in line["thing"]
