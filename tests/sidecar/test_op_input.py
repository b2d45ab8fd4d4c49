"""What is sent to an op that runs: its input, each byte once, and what is typed at its terminal."""

from __future__ import annotations

import hashlib

import httpx
import pytest

from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_stdin_has_offsets(box: Sidecar) -> None:
    await box.op("cat", id="cat", stdin=True, detach=True)
    assert (await box.call("POST", "/v1/ops/cat/stdin?offset=0", content=b"abc")).json() == {"offset": 3}
    assert (await box.call("POST", "/v1/ops/cat/stdin?offset=1", content=b"bcde")).json() == {"offset": 5}
    gap = await box.call("POST", "/v1/ops/cat/stdin?offset=9", content=b"z")
    assert (gap.status_code, gap.json()["error"], gap.json()["offset"]) == (409, "stdin_gap", 5)
    assert (await box.call("POST", "/v1/ops/cat/stdin?offset=5&eof=1", content=b"f")).json() == {"offset": 6}
    await box.ended("cat")
    assert (await box.call("GET", "/v1/ops/cat/output?stream=stdout")).text == "abcdef"
    assert (await box.call("GET", "/v1/ops/cat/output?stream=stdout&offset=2&length=3")).text == "cde"
    late = await box.call("POST", "/v1/ops/cat/stdin?offset=6", content=b"z")
    assert late.status_code == 409


async def test_input_with_an_id_is_written_once(box: Sidecar) -> None:
    await box.op("cat", id="cat", stdin=True, detach=True)
    for name, data in (("a", b"one "), ("b", b"two "), ("a", b"one "), ("c", b"three")):
        assert (await box.call("POST", f"/v1/ops/cat/stdin?id={name}", content=data)).status_code == 200
    both = await box.call("POST", "/v1/ops/cat/stdin?id=d&offset=3", content=b"z")
    assert (both.status_code, both.json()["field"]) == (400, "id")
    assert (await box.call("POST", "/v1/ops/cat/stdin?id=e&eof=1")).json() == {"offset": 13}
    await box.ended("cat")
    assert (await box.call("GET", "/v1/ops/cat/output")).text == "one two three"


async def test_an_op_that_waits_for_its_turn_keeps_its_whole_input(make) -> None:
    """End of file closes the writing end of the pipe; the runner gets the command's end later."""
    box = await make(claim={}, ops={"max_running": 1})
    await box.op("sleep 300", id="first", detach=True)
    await box.op("cat", id="cat", stdin=True, detach=True)
    assert (await box.call("POST", "/v1/ops/cat/stdin?eof=1", content=b"kept")).json() == {"offset": 4}
    assert (await box.call("GET", "/v1/ops/cat")).json()["state"] == "queued"
    await box.call("DELETE", "/v1/ops/first")
    await box.ended("cat")
    document = (await box.call("GET", "/v1/ops/cat")).json()
    assert (document["verdict"], document["exit_code"]) == ("exited", 0)
    assert (await box.call("GET", "/v1/ops/cat/output")).text == "kept"


async def test_repeat_of_half_taken_input_goes_on_where_it_stopped(box: Sidecar) -> None:
    data = bytes(range(256)) * 4096  # 1 MiB: more than a pipe holds
    await box.op("until [ -e /tmp/go ]; do sleep 0.02; done; sha256sum", id="slow", stdin=True, detach=True)
    with pytest.raises(httpx.TimeoutException):  # who sent it gives up: the command does not read yet
        await box.call("POST", "/v1/ops/slow/stdin?id=big", content=data, timeout=1.0)
    await box.exec("touch /tmp/go")
    answer = await box.call("POST", "/v1/ops/slow/stdin?id=big&eof=1", content=data)
    assert answer.json() == {"offset": len(data)}
    await box.ended("slow")
    said = (await box.call("GET", "/v1/ops/slow/output")).text.split()[0]
    assert said == hashlib.sha256(data).hexdigest()


async def test_stdin_waits_while_the_pipe_is_full(box: Sidecar) -> None:
    await box.op("sleep 0.5; wc -c", id="slow", stdin=True, detach=True)
    answer = await box.call("POST", "/v1/ops/slow/stdin?offset=0&eof=1", content=b"x" * 1_000_000)
    assert answer.json() == {"offset": 1_000_000}
    await box.ended("slow")
    assert (await box.call("GET", "/v1/ops/slow/output")).text.strip() == "1000000"


async def test_an_op_without_stdin_refuses_it(box: Sidecar) -> None:
    await box.op("sleep 300", id="none", detach=True)
    assert (await box.call("POST", "/v1/ops/none/stdin?offset=0", content=b"x")).status_code == 409
    assert (await box.call("POST", "/v1/ops/none/resize", json={"cols": 1, "rows": 1})).json()[
        "error"
    ] == "not_a_pty"


async def test_terminal(box: Sidecar) -> None:
    await box.op(
        "tty; stty size; read x; stty size; cat", id="pty", pty={"cols": 100, "rows": 30}, detach=True
    )

    async def screen(text: bytes) -> bytes:
        async def shown() -> bytes:
            seen = (await box.call("GET", "/v1/ops/pty/output?stream=stdout")).content
            return seen if text in seen else b""

        return await until(shown)

    assert b"/dev/pts/" in await screen(b"30 100")
    assert (await box.call("POST", "/v1/ops/pty/resize", json={"cols": 90, "rows": 40})).status_code == 200
    await box.call("POST", "/v1/ops/pty/stdin?offset=0", content=b"\n")
    await screen(b"40 90")
    await box.call("POST", "/v1/ops/pty/stdin?offset=1&eof=1", content=b"typed\n")
    document = await box.ended("pty")
    assert (document["exit_code"], document["verdict"]) == (0, "exited")
    assert b"typed" in (await box.call("GET", "/v1/ops/pty/output?stream=stdout")).content


async def test_a_terminal_resized_before_its_op_runs_has_the_last_size(make) -> None:
    box = await make(claim={}, ops={"max_running": 1})
    await box.op("sleep 300", id="first", detach=True)
    await box.op("stty size", id="pty", pty={"cols": 100, "rows": 30}, detach=True)
    for cols, rows in ((70, 20), (90, 40)):
        answer = await box.call("POST", "/v1/ops/pty/resize", json={"cols": cols, "rows": rows})
        assert answer.status_code == 200
    document = (await box.call("GET", "/v1/ops/pty?spec=1")).json()
    assert (document["state"], document["spec"]["pty"]) == ("queued", {"cols": 100, "rows": 30})
    await box.call("DELETE", "/v1/ops/first")
    await box.ended("pty")
    assert (await box.call("GET", "/v1/ops/pty/output")).content == b"40 90\r\n"


async def test_a_command_that_leaves_its_terminal_is_not_hung_up_and_may_take_it_up_again(
    box: Sidecar,
) -> None:
    command = "exec <&- >&- 2>&-; sleep 0.3; exec >/dev/tty; echo back; exit 3"
    await box.op(command, id="left", pty={"cols": 80, "rows": 24}, detach=True)
    document = await box.ended("left")
    assert (document["exit_code"], document["verdict"]) == (3, "exited")
    assert (await box.call("GET", "/v1/ops/left/output?stream=stdout")).content == b"back\r\n"
