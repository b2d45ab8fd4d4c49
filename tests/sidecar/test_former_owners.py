"""A reset ends an owner's use at the sidecar: its requests, timers and data do not reach the next owner."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.sidecar.calls import has_output, pass_on
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root

SECRET = "secret-of-the-former-owner"
LISTEN = "import socket, sys, time\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))\nprint('on', flush=True)\ntime.sleep(600)"


async def head(
    box: Sidecar, request: str, *, length: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which the head of a request has been read, but not its body."""
    reader, writer = await box.raw()
    lines = (
        request + " HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {box.token}",
        f"Content-Length: {length}",
    )
    writer.write("\r\n".join((*lines, "Expect: 100-continue", "\r\n")).encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    return reader, writer


# Each leaves /planted if it acts.
BODIES = {
    "exec": ("POST /v1/exec", json.dumps({"command": "touch /planted"})),
    "op": ("POST /v1/ops", json.dumps({"command": "touch /planted", "detach": True})),
    "directory": ("POST /v1/files/mkdir", json.dumps({"path": "/planted"})),
    "move": ("POST /v1/files/move", json.dumps({"source": "/etc/passwd", "target": "/planted"})),
    "file": ("PUT /v1/files?path=/planted", "x" * 100),
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("when", ["during the reset", "after the next claim"])
async def test_a_body_that_comes_late_acts_on_nothing(make, kind: str, when: str) -> None:
    """A request is authorized by its head; the owner may have changed when its body is complete."""
    box = await make(claim={})
    request, body = BODIES[kind]
    reader, writer = await head(box, request, length=len(body))
    passing = asyncio.create_task(pass_on(box))
    if when == "during the reset":
        await until(lambda: has_phase(box, "starting", passing))
    else:
        await passing
    writer.write(body.encode())
    answer = await asyncio.wait_for(read_all(reader), 20)
    await passing
    assert not answer or answer.startswith((b"HTTP/1.1 503 ", b"HTTP/1.1 404 ")), answer
    writer.close()
    assert (await box.exec("ls -A / | grep planted; ls /etc/passwd"))["stdout"] == "/etc/passwd\n"
    assert [op["op_id"] for op in (await box.call("GET", "/v1/ops")).json()["ops"]][1:] == []


async def has_phase(box: Sidecar, phase: str, passing: asyncio.Task[None]) -> bool:
    return passing.done() or (await box.instance("GET", "/v1/state")).json()["phase"] == phase


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end, or until nothing more does: an answer may leave the connection open."""
    try:
        async with asyncio.timeout(2):
            return await reader.read(-1)
    except (ConnectionError, TimeoutError):
        return bytes(reader._buffer)  # type: ignore[attr-defined]


async def test_a_tunnel_ends_with_its_owner(make) -> None:
    box = await make(claim={})
    port = free_port()  # in the machine's network, as the sandbox has it here
    await box.call("PUT", "/v1/files?path=/listen.py", content=LISTEN.encode())
    await box.op(["python3", "/listen.py", str(port)], id="listens", detach=True)
    await until(lambda: has_output(box, "listens", "on\n"))
    reader, writer = await box.raw()
    writer.write(
        f"POST /v1/tcp?port={port} HTTP/1.1\r\nAuthorization: Bearer {box.token}\r\n"
        "Connection: Upgrade\r\nUpgrade: sandlot-tcp\r\n\r\n".encode()
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    await pass_on(box, idle_timeout=1)
    assert await asyncio.wait_for(reader.read(-1), 20) == b""
    await nobody_keeps_it_awake(box)
    writer.close()


async def nobody_keeps_it_awake(box: Sidecar) -> None:
    """Its idle timeout ends it, although a former owner's client is still there."""
    event = await box.webhooks.wait("ended")
    assert (event["verdict"], event["sandbox_id"]) == ("idle", "sb-next")


@pytest.mark.parametrize("request_line", ["PUT /v1/files?path=/upload", "POST /v1/ops/cat/stdin"])
async def test_an_upload_that_stalls_ends_with_its_owner(make, request_line: str) -> None:
    box = await make(claim={})
    await box.op("cat", id="cat", stdin=True, detach=True)
    reader, writer = await head(box, request_line, length=1000)
    writer.write(b"x" * 500)
    await pass_on(box, idle_timeout=1)
    with pytest.raises(ConnectionError):
        await go_on(writer)
    await nobody_keeps_it_awake(box)
    assert await read_all(reader) == b""


async def go_on(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(20):
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)


async def test_a_slow_reader_of_a_file_ends_with_its_owner(make) -> None:
    box = await make(claim={})
    assert (await box.exec("dd if=/dev/zero of=/big bs=1M count=32"))["exit_code"] == 0
    reader, writer = await box.raw()
    writer.write(f"GET /v1/files?path=/big HTTP/1.1\r\nAuthorization: Bearer {box.token}\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    await pass_on(box, idle_timeout=1)
    await nobody_keeps_it_awake(box)
    writer.close()


async def test_nothing_of_an_owner_is_told_to_the_next(make) -> None:
    """Neither its token opens anything, nor is anything answered, stored or set that was its own."""
    former = {"env": {"OLD": SECRET}, "secrets": {"KEY": SECRET}, "meta": {"name": SECRET}, "workdir": "/tmp"}
    box = await make(claim={**former, "start_command": f"echo {SECRET}", "timeout": 600, "idle_timeout": 500})
    await box.exec(f"echo {SECRET}; echo {SECRET} >&2", op="chosen")
    await box.op(f"cat; echo {SECRET}", id="input", stdin=True, detach=True)
    await box.call("POST", "/v1/ops/input/stdin?id=one", content=SECRET.encode())
    await until(lambda: has_logs(box, f"{SECRET}\n"))
    old = box.token
    await pass_on(box)
    state = (await box.instance("GET", "/v1/state")).json()
    assert (state["meta"], state["deadline_at"], state["idle_timeout"]) == ({}, None, None)
    assert (state["start_command"]["state"], state["egress"], state["ops_running"]) == ("none", False, 0)
    assert SECRET not in json.dumps(state)
    for path in ("/v1/ops/chosen", "/v1/ops/input", "/v1/ops/chosen/output", "/v1/ops/input/stream"):
        assert (await box.call("GET", path)).status_code == 404, path
    for method, path in (
        ("POST", "/v1/ops/input/stdin"),
        ("POST", "/v1/ops/input/signal"),
        ("DELETE", "/v1/ops/input"),
    ):
        assert (await box.call(method, path, json={"signal": "KILL"})).status_code == 404, path
    assert (await box.call("GET", "/v1/ops")).json() == {"ops": []}
    assert (await box.call("GET", "/v1/logs")).text == ""
    again = await box.exec("env; pwd; cat", op="chosen", stdin="mine")
    assert again["verdict"] == "exited"
    assert SECRET not in again["stdout"]
    assert re.search(r"^/\nmine$", again["stdout"], re.MULTILINE), again
    box.token = old
    for method, path in (
        ("POST", "/v1/exec"),
        ("GET", "/v1/ops"),
        ("GET", "/v1/state"),
        ("GET", "/v1/files?path=/etc/passwd"),
    ):
        assert (await box.call(method, path, json={"command": "true"})).status_code == 401, path
    kept = state_files(box)
    assert SECRET.encode() not in kept
    assert old.encode() not in kept


async def has_logs(box: Sidecar, text: str) -> bool:
    return (await box.call("GET", "/v1/logs")).text == text


def state_files(box: Sidecar) -> bytes:
    return b"".join(path.read_bytes() for path in Path(box.directory).iterdir() if path.is_file())


async def test_descriptors_of_commands_are_their_own(make) -> None:
    """A command has three, with no socket, file or process of the sidecar's behind them."""
    look = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))), os.umask(0), os.getpriority(0, 0), os.getppid())"
    box = await make(claim={})
    fresh = (await box.exec(["python3", "-c", look]))["stdout"]
    await box.exec(["python3", "-c", "import os; os.umask(0o777); os.nice(19); os.setsid()"])
    await pass_on(box)
    assert (await box.exec(["python3", "-c", look]))["stdout"] == fresh == "[0, 1, 2, 3] 18 0 0\n"


async def test_timers_of_an_owner_do_not_end_the_next(make) -> None:
    box = await make(claim={"timeout": 8.0, "idle_timeout": 8.0})
    over = asyncio.get_running_loop().time() + 8.5
    await pass_on(box)
    await asyncio.sleep(over - asyncio.get_running_loop().time())
    assert (await box.instance("GET", "/v1/state")).json()["phase"] == "claimed"


async def test_files_for_a_former_owner_are_not_restored_for_the_next(make) -> None:
    box = await make(claim={})
    await box.exec("echo planted > /planted")
    archive = (await box.instance("POST", "/v1/checkpoint")).content
    for restore in (True, False):
        answer = await box.instance("POST", "/v1/reset", json={"keep_claim": False})
        assert answer.json()["equal"] is True, answer.text
        await box.claim(restore=restore)
    late = await box.instance("POST", "/v1/restore", content=archive)
    assert (late.status_code, late.json()["error"]) == (409, "conflict")
    assert (await box.exec("ls /planted"))["exit_code"] != 0
