"""What a gateway sees of the owner's commands, and that its look changes nothing."""

from __future__ import annotations

import pytest

from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def seen(box: Sidecar, query: str = "") -> dict:
    answer = await box.instance("GET", f"/v1/commands?of=sb-test{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def tail(box: Sidecar, query: str) -> bytes:
    answer = await box.instance("GET", f"/v1/commands/output?of=sb-test&{query}")
    assert answer.status_code == 200, answer.text
    return answer.content


async def runs(box: Sidecar, op_id: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}")).json()["state"] == "running"


async def test_commands_newest_first_also_after_their_end(box: Sidecar) -> None:
    await box.exec("echo one; echo two >&2; exit 3", op="first")
    await box.exec(["printf", "x" * 300], op="second")
    await box.op("read line", id="third", stdin=True, detach=True)
    await until(lambda: runs(box, "third"))
    found = await seen(box)
    assert [command["op_id"] for command in found["commands"]] == ["third", "second", "first"]
    assert found["total"] == 3
    third, second, first = found["commands"]
    assert (third["command"], third["state"], third["start_command"]) == ("read line", "running", False)
    assert second["command"] == ("printf " + "x" * 300)[:256]
    assert (first["command"], first["exit_code"]) == ("echo one; echo two >&2; exit 3", 3)
    assert [command["op_id"] for command in (await seen(box, "&last=1"))["commands"]] == ["third"]
    for query in ("&last=0", "&last=501", "&last=x"):
        assert (await box.instance("GET", f"/v1/commands?of=sb-test{query}")).json()["field"] == "last"


async def test_the_last_output_of_a_command(make) -> None:
    box = await make(claim={"start_command": "echo begun; exec sleep 1000"})
    await box.exec("printf 0123456789; printf err >&2", op="a")
    assert await tail(box, "op=a") == b"0123456789"
    assert await tail(box, "op=a&tail=4") == b"6789"
    assert await tail(box, "op=a&stream=stderr") == b"err"
    start = (await seen(box))["commands"][-1]
    assert start["start_command"] is True
    await until(lambda: tail(box, f"op={start['op_id']}"))
    assert await tail(box, f"op={start['op_id']}") == b"begun\n"
    assert await tail(box, f"op={start['op_id']}&tail=3") == b"un\n"
    unknown = await box.instance("GET", "/v1/commands/output?of=sb-test&op=none")
    assert (unknown.status_code, unknown.json()["error"]) == (404, "no_such_op")
    for query, field in (("op=a&stream=x", "stream"), ("op=a&tail=2000000", "tail"), ("", "op")):
        bad = await box.instance("GET", f"/v1/commands/output?of=sb-test&{query}")
        assert (bad.status_code, bad.json()["field"]) == (400, field)


async def test_only_of_the_owner_and_only_for_the_gateway(box: Sidecar) -> None:
    await box.exec("true", op="a")
    for path in ("/v1/commands?of=", "/v1/commands/output?op=a&of="):
        assert (await box.call("GET", path + "sb-test")).status_code == 401
        other = await box.instance("GET", path + "sb-other")
        assert (other.status_code, other.json()["error"]) == (409, "claimed")


async def test_a_look_is_no_use_and_keeps_no_op(make) -> None:
    box = await make(claim={"start_command": "exec sleep 1000"}, ops={"reattach_grace": 0.5})
    start = (await seen(box))["commands"][0]
    await tail(box, f"op={start['op_id']}")
    await box.instance("POST", "/v1/orphan", json={"sandbox_id": "sb-test", "grace": 0.01})
    assert (await box.webhooks.wait("ended"))["verdict"] == "deleted"

    watched = await make(claim={}, ops={"reattach_grace": 0.5})
    await watched.op("sleep 1000", id="left")

    async def verdict() -> str | None:
        await tail(watched, "op=left")
        return (await seen(watched))["commands"][0]["verdict"]

    assert await until(verdict) == "client_gone"


@pytest.mark.parametrize("command", [b'["printf", "\\udcff"]', b'["\\udcff"]'])
async def test_a_command_that_is_not_utf_8_is_json(box: Sidecar, command: bytes) -> None:
    body = b'{"command": ' + command + b"}"
    assert (await box.call("POST", "/v1/exec", content=body)).status_code == 200
    (found,) = (await seen(box))["commands"]
    assert found["command"] in ("printf ?", "?")
    assert found["message"] in (None, "?: command not found")


async def test_a_message_is_cut(box: Sidecar) -> None:
    """It has the whole name of a command that is not found; 500 of them would fill the gateway's memory."""
    await box.exec(["n" * 100_000], op="a")
    (found,) = (await seen(box))["commands"]
    assert found["message"] == "n" * 1000
