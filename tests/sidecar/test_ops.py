"""What an op does, each sentence of the contract's semantics as a test over the real surface."""

from __future__ import annotations

import asyncio
import hashlib
import json
from functools import partial

import httpx
import pytest

from tests.sidecar.support import Sidecar, parse_frames, payload, tells_why
from tests.waiting import until

pytestmark = pytest.mark.root


async def count(box: Sidecar, pattern: str) -> int:
    """How many processes in the sandbox match."""
    listing = await box.exec("for d in /proc/[0-9]*; do tr '\\0' ' ' < $d/cmdline 2>/dev/null; echo; done")
    return sum(pattern in line and "for d in" not in line for line in listing["stdout"].splitlines())


async def status(box: Sidecar, path: str, wanted: int) -> bool:
    return (await box.call("GET", path)).status_code == wanted


async def state(box: Sidecar, op_id: str, wanted: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}")).json()["state"] == wanted


async def ended_with(box: Sidecar, verdict: str) -> bool:
    """The last op: by the list, since a question for the op itself counts as somebody who attends it."""
    return (await box.call("GET", "/v1/ops")).json()["ops"][-1]["verdict"] == verdict


async def at_least(box: Sidecar, pattern: str, number: int) -> bool:
    return await count(box, pattern) >= number


async def printed(box: Sidecar, op_id: str, number: int) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}")).json()["stdout_bytes"] >= number


async def settled(box: Sidecar, before: tuple[int, int]) -> bool:
    return box.descriptors()[0] <= before[0] and len(box.tree()) <= 5


async def test_exec_answers_primes_json(box: Sidecar) -> None:
    answer = await box.exec("echo out; echo err >&2; exit 3")
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("out\n", "err\n", 3)
    assert answer["verdict"] == "exited"
    assert answer["signal"] is None
    assert (answer["stdout_bytes"], answer["stderr_bytes"], answer["truncated"]) == (4, 4, False)
    assert set(answer["usage"]) == {"queued", "wall", "cpu", "peak_memory"}
    hungry = await box.exec("python3 -c 'x = bytearray(30 << 20)'")
    assert 30 << 20 < hungry["usage"]["peak_memory"] < 100 << 20


async def test_a_string_runs_in_bash_or_in_the_shell_that_is_asked_for(box: Sidecar) -> None:
    script = "echo ${BASH_VERSION:+bash}"
    assert (await box.exec(script))["stdout"] == "bash\n"
    assert (await box.exec(script, shell="sh"))["stdout"] == "\n"
    assert (await box.exec(script, shell="/bin/bash"))["stdout"] == "bash\n"
    assert (await box.exec(["echo", "a b", "$HOME"]))["stdout"] == "a b $HOME\n"
    await box.op(script, wait=10, id="b")
    assert (await box.call("GET", "/v1/ops/b/output?stream=stdout")).text == "bash\n"
    for wrong in ("zsh", "./sh", "", 7):
        answer = await box.call("POST", "/v1/exec", json={"command": script, "shell": wrong})
        assert (answer.status_code, answer.json()["field"]) == (400, "shell")


@pytest.mark.parametrize(
    "command", ["sleep 33 & echo started", "nohup sleep 33 & echo started", "(sleep 33 &) ; echo started"]
)
async def test_ends_when_its_own_process_ends_although_a_child_holds_the_pipes(
    box: Sidecar, command: str
) -> None:
    answer = await asyncio.wait_for(box.exec(command), 10)
    assert answer["stdout"] == "started\n"
    assert answer["exit_code"] == 0
    assert answer["usage"]["wall"] < 5
    assert await count(box, "sleep 33") == 1


async def test_timeout_kills_every_descendant_and_returns_the_partial_output(box: Sidecar) -> None:
    await box.exec("sleep 77 & echo background of an earlier op")
    script = "setsid sleep 66 & (setsid sh -c 'sleep 66 & sleep 66' &) ; echo partial; sleep 66"
    response = await box.call("POST", "/v1/exec", json={"command": script, "timeout": 2})
    answer = response.json()
    assert response.status_code == 408
    assert answer["verdict"] == "timeout"
    assert answer["stdout"] == "partial\n"
    assert answer["exit_code"] == 137
    tells_why(answer, "reached its time limit of 2 s")
    assert await count(box, "sleep 66") == 0
    assert await count(box, "sleep 77") == 1


async def test_exit_codes_are_those_of_a_shell(box: Sidecar) -> None:
    assert (await box.exec("kill -TERM $$"))["exit_code"] == 143
    killed = await box.exec("kill -9 $$")
    assert (killed["exit_code"], killed["signal"], killed["verdict"]) == (137, 9, "signaled")
    assert (await box.exec("no-such-program-here"))["exit_code"] == 127
    assert (await box.exec("/etc/passwd"))["exit_code"] == 126
    missing = await box.op(["no-such-program-here"], wait=10)
    assert (missing["exit_code"], missing["verdict"]) == (127, "exited")
    refused = await box.op(["/etc/passwd"], wait=10)
    assert (refused["exit_code"], refused["verdict"]) == (126, "exited")


async def test_missing_user_and_directory_are_clear(box: Sidecar) -> None:
    answer = await box.exec("true", user="nobody-of-this-name")
    assert answer["verdict"] == "start_failed"
    assert "user" in answer["message"]
    assert "nobody-of-this-name" in answer["stderr"]
    assert isinstance(answer["exit_code"], int)
    answer = await box.exec("true", working_dir="/no/such/place")
    assert answer["verdict"] == "start_failed"
    assert "cwd" in answer["message"]


async def test_environment_directory_and_user(make) -> None:
    box = await make(
        root={"env": {"FROM_IMAGE": "1", "TWICE": "image"}},
        claim={"env": {"FROM_CLAIM": "2", "TWICE": "claim"}, "secrets": {"SECRET": "s3"}, "workdir": "/usr"},
    )
    answer = await box.exec(
        "echo $FROM_IMAGE $FROM_CLAIM $SECRET $TWICE $OWN; pwd; echo $HOME; id -un", env={"OWN": "4"}
    )
    assert answer["stdout"].splitlines() == ["1 2 s3 claim 4", "/usr", "/root", "root"]
    answer = await box.exec("id -u; pwd", user=65534, working_dir="/tmp", env={"TWICE": "op"})
    assert answer["stdout"].splitlines() == ["65534", "/tmp"]
    assert (await box.exec("id -un", user="nobody"))["stdout"] == "nobody\n"
    assert "s3" not in (await box.instance("GET", "/v1/state")).text
    assert "s3" not in box.log()


async def test_output_that_is_not_utf8(box: Sidecar) -> None:
    assert (await box.exec("printf 'a\\377b'"))["stdout"] == "a\ufffdb"


async def test_stdin_of_exec(box: Sidecar) -> None:
    assert (await box.exec("cat", stdin="small"))["stdout"] == "small"
    large = "x" * 3_000_000
    assert (await box.exec("wc -c", stdin=large))["stdout"].strip() == "3000000"
    assert (await box.exec("wc -c"))["stdout"].strip() == "0"


async def test_streamed_form(box: Sidecar) -> None:
    response = await box.call(
        "POST", "/v1/ops", json={"command": "echo out; echo err >&2; exit 4", "id": "a"}
    )
    assert response.headers["content-type"] == "application/vnd.sandlot.frames"
    assert response.headers["x-sandlot-op"] == "a"
    assert response.headers["x-sandlot-attached"] == "0"
    frames = parse_frames(response.content)
    assert frames[0][0] == "s"
    start = json.loads(frames[0][1])
    assert start["op_id"] == "a"
    assert start["pid"] > 1
    assert payload(frames, "o") == b"out\n"
    assert payload(frames, "e") == b"err\n"
    assert frames[-1][0] == "x"
    end = json.loads(frames[-1][1])
    assert (end["exit_code"], end["verdict"], end["state"]) == (4, "exited", "ended")
    assert end["offset"] == sum(5 + len(data) for kind, data in frames if kind != "x")


async def test_output_streams_while_it_is_made(box: Sidecar) -> None:
    async with box.stream(
        "POST", "/v1/ops", json={"command": "echo first; read line; echo got $line", "stdin": True, "id": "i"}
    ) as answer:
        seen = b""
        async for part in answer.aiter_raw():
            seen += part
            if b"first\n" in seen and b"got" not in seen:
                await box.call("POST", "/v1/ops/i/stdin?offset=0", content=b"hello\n")
        assert b"got hello\n" in seen


async def test_the_same_id_attaches_and_never_runs_twice(box: Sidecar) -> None:
    body = {"command": "echo x >> /tmp/ran; echo out; sleep 0.5; echo more", "id": "once"}
    first, second = await asyncio.gather(*(box.call("POST", "/v1/ops", json=body) for _ in range(2)))
    assert {first.headers["x-sandlot-attached"], second.headers["x-sandlot-attached"]} == {"0", "1"}
    assert first.content == second.content
    again = await box.call("POST", "/v1/ops", json=body)
    assert again.content == first.content
    assert (await box.exec("cat /tmp/ran"))["stdout"] == "x\n"
    conflict = await box.call("POST", "/v1/ops", json={**body, "command": "true"})
    assert conflict.status_code == 409
    assert conflict.json()["error"] == "op_conflict"


async def test_offsets(box: Sidecar) -> None:
    whole = (
        await box.call(
            "POST", "/v1/ops", json={"command": "for i in 1 2 3; do echo $i; sleep 0.05; done", "id": "f"}
        )
    ).content
    frames = parse_frames(whole)
    offset = 0
    for kind, data in frames:
        rest = await box.call("GET", f"/v1/ops/f/stream?offset={offset}")
        assert rest.content == whole[offset:]
        offset += 5 + len(data) if kind != "x" else 0
    bad = await box.call("GET", "/v1/ops/f/stream?offset=3")
    assert bad.status_code == 416
    assert bad.json()["error"] == "bad_offset"
    assert bad.json()["size"] == offset
    assert (await box.call("GET", f"/v1/ops/f/stream?offset={offset + 1}")).status_code == 416


async def test_exec_with_an_op_id_is_safe_to_retry(box: Sidecar) -> None:
    first = await box.exec("echo x >> /tmp/n; date +%N", op="retry")
    second = await box.exec("echo x >> /tmp/n; date +%N", op="retry")
    assert first == second
    assert (await box.exec("cat /tmp/n"))["stdout"] == "x\n"
    other = await box.call("POST", "/v1/exec", json={"command": "true"}, headers={"X-Sandlot-Op": "retry"})
    assert other.status_code == 409


async def test_results_expire_and_never_run_again(make) -> None:
    box = await make(claim={}, ops={"result_ttl": 0.3})
    await box.exec("echo x >> /tmp/n", op="old")
    await until(lambda: status(box, "/v1/ops/old", 410))
    answer = await box.call(
        "POST", "/v1/exec", json={"command": "echo x >> /tmp/n"}, headers={"X-Sandlot-Op": "old"}
    )
    assert answer.status_code == 410
    assert answer.json()["error"] == "expired"
    assert (await box.exec("cat /tmp/n"))["stdout"] == "x\n"


async def test_results_are_bounded_by_size(make) -> None:
    box = await make(claim={}, ops={"result_bytes": 100_000})
    for number in range(5):
        await box.exec("head -c 40000 /dev/zero", op=f"big-{number}")
    known = {op["op_id"] for op in (await box.call("GET", "/v1/ops")).json()["ops"]}
    assert "big-0" not in known
    assert "big-4" in known
    assert (await box.call("GET", "/v1/ops/big-0")).status_code == 410


async def test_client_gone_without_an_id_kills_at_once(box: Sidecar) -> None:
    _, writer = await box.raw()
    body = json.dumps({"command": "echo $$ > /tmp/pid; sleep 55"}).encode()
    writer.write(
        b"POST /v1/exec HTTP/1.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
        % (box.token.encode(), len(body), body)
    )
    await until(lambda: status(box, "/v1/files/stat?path=/tmp/pid", 200))
    writer.close()
    await until(lambda: ended_with(box, "client_gone"))
    assert await count(box, "sleep 55") == 0


async def test_client_gone_with_an_id_gets_a_grace(make) -> None:
    box = await make(claim={}, ops={"reattach_grace": 2})

    async def begin_and_leave(name: str) -> None:
        body = {"command": "echo on; read line < /tmp/go; echo off", "id": name}
        async with box.stream("POST", "/v1/ops", json=body) as answer:
            async for _ in answer.aiter_raw():
                break

    await box.exec("mkfifo /tmp/go")
    await begin_and_leave("comes-back")
    async with box.stream("GET", "/v1/ops/comes-back/stream?offset=0") as answer:
        await begin_and_leave("stays-away")
        await until(lambda: ended_with(box, "client_gone"))  # its grace began after the other one's
        await box.exec("echo > /tmp/go")
        frames = parse_frames(await answer.aread())
    assert payload(frames, "o") == b"on\noff\n"
    assert json.loads(frames[-1][1])["verdict"] == "exited"


async def test_an_op_can_be_detached_after_its_start(make) -> None:
    box = await make(claim={}, ops={"reattach_grace": 0.2})
    async with box.stream("POST", "/v1/ops", json={"command": "sleep 1; echo done"}) as answer:
        op_id = answer.headers["X-Sandlot-Op"]
        assert (await box.call("POST", f"/v1/ops/{op_id}/detach")).json() == {}
    document = await box.ended(op_id)
    assert (document["verdict"], document["detached"]) == ("exited", True)
    assert (await box.call("POST", "/v1/ops/none/detach")).status_code == 404


async def test_detached_ops_stay(make) -> None:
    box = await make(claim={}, ops={"reattach_grace": 0.1})
    document = await box.op("sleep 0.8; echo done", detach=True, wait=0)
    assert document["detached"] is True
    frames = await box.frames(f"/v1/ops/{document['op_id']}/stream")
    assert payload(frames, "o") == b"done\n"


async def test_signals_reach_the_tree(box: Sidecar) -> None:
    op = await box.op("sh -c 'sleep 44' & sleep 44; wait", id="sig", detach=True)
    await until(lambda: at_least(box, "sleep 44", 3))
    assert (await box.call("POST", "/v1/ops/sig/signal", json={"signal": "KILL"})).json() == {}
    document = await box.ended(op["op_id"])
    assert (document["verdict"], document["signal"]) == ("killed", 9)
    assert await count(box, "sleep 44") == 0


async def test_a_signal_with_an_id_is_sent_once(box: Sidecar) -> None:
    traps = "trap 'echo one >> /tmp/got' USR1; trap 'echo two >> /tmp/got' USR2; touch /tmp/on"
    await box.op(f"{traps}; while :; do sleep 0.02; done", id="usr", detach=True)
    await until(lambda: status(box, "/v1/files/stat?path=/tmp/on", 200))

    async def send(signal: str, name: str) -> None:
        told = {"signal": signal, "tree": False, "id": name}
        assert (await box.call("POST", "/v1/ops/usr/signal", json=told)).status_code == 200

    async def got(text: str) -> None:
        async def is_there() -> bool:
            return (await box.exec("cat /tmp/got 2> /dev/null || true"))["stdout"] == text

        await until(is_there)

    await send("USR1", "a")
    await got("one\n")
    await send("USR1", "a")
    await send(
        "USR2", "b"
    )  # the shell handles the lower number first, so what it would have got is there by then
    await got("one\ntwo\n")
    await send("USR1", "c")
    await got("one\ntwo\none\n")
    ended = await box.call("DELETE", "/v1/ops/usr")
    assert ended.json()["verdict"] == "killed"
    assert (await box.call("POST", "/v1/ops/usr/signal", json={"signal": 15})).status_code == 409


async def test_delete_kills_the_whole_tree(box: Sidecar) -> None:
    await box.op("setsid sleep 43 & sleep 43", id="del", detach=True)
    answer = await box.call("DELETE", "/v1/ops/del")
    assert (answer.json()["verdict"], answer.json()["state"]) == ("killed", "ended")
    assert await count(box, "sleep 43") == 0
    assert (await box.call("DELETE", "/v1/ops/del")).json()["verdict"] == "killed"


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


async def test_resumed_stream_begins_where_the_lost_one_was(box: Sidecar) -> None:
    command = "echo one; read line; echo $line; read line; echo $line"
    await box.op(command, id="again", stdin=True, detach=True)
    assert (await box.call("GET", "/v1/ops/again?spec=1")).json()["spec"]["command"] == command
    async with box.stream("GET", "/v1/ops/again/stream?resume=1") as stream:
        seen = b""
        async for piece in stream.aiter_raw():
            seen += piece
            if b"one" in seen:
                break
    await box.call("POST", "/v1/ops/again/stdin?id=1", content=b"two\n")
    await until(partial(printed, box, "again", 8))
    async with box.stream("GET", "/v1/ops/again/stream?resume=1") as stream:
        await box.call("POST", "/v1/ops/again/stdin?id=2", content=b"three\n")
        found = parse_frames(await stream.aread())
    assert (payload(found, "o"), found[-1][0]) == (b"two\nthree\n", "x")
    document = (await box.call("GET", "/v1/ops/again?spec=1")).json()
    assert (document["state"], document["spec"]) == ("ended", None)
    assert [kind for kind, _ in await box.frames("/v1/ops/again/stream?resume=1")] == ["x"]
    assert payload(await box.frames("/v1/ops/again/stream"), "o") == b"one\ntwo\nthree\n"


async def test_quiet_op_tells_its_start_with_its_end(box: Sidecar) -> None:
    found = await box.frames("/v1/ops", method="POST", json={"command": "echo out", "quiet": True})
    assert [kind for kind, _ in found] == ["s", "o", "x"]


async def test_stdin_waits_while_the_pipe_is_full(box: Sidecar) -> None:
    await box.op("sleep 0.5; wc -c", id="slow", stdin=True, detach=True)
    answer = await box.call("POST", "/v1/ops/slow/stdin?offset=0&eof=1", content=b"x" * 1_000_000)
    assert answer.json() == {"offset": 1_000_000}
    await box.ended("slow")
    assert (await box.call("GET", "/v1/ops/slow/output")).text.strip() == "1000000"


async def test_an_op_without_stdin_refuses_it(box: Sidecar) -> None:
    await box.op("sleep 5", id="none", detach=True)
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


async def test_a_command_that_leaves_its_terminal_is_not_hung_up_and_may_take_it_up_again(
    box: Sidecar,
) -> None:
    command = "exec <&- >&- 2>&-; sleep 0.3; exec >/dev/tty; echo back; exit 3"
    await box.op(command, id="left", pty={"cols": 80, "rows": 24}, detach=True)
    document = await box.ended("left")
    assert (document["exit_code"], document["verdict"]) == (3, "exited")
    assert (await box.call("GET", "/v1/ops/left/output?stream=stdout")).content == b"back\r\n"


async def test_queue_in_order_then_busy(make) -> None:
    box = await make(claim={}, ops={"max_running": 2, "max_queued": 2})
    for number in range(4):
        await box.op("sleep 30", id=f"q{number}", detach=True)
        if number < 2:
            await until(partial(state, box, f"q{number}", "running"))
    states = [(await box.call("GET", f"/v1/ops/q{number}")).json()["state"] for number in range(4)]
    assert states == ["running", "running", "queued", "queued"]
    full = await box.call("POST", "/v1/exec", json={"command": "true"})
    assert (full.status_code, full.json()["error"], full.headers["retry-after"]) == (503, "busy", "1")
    queued = (await box.call("DELETE", "/v1/ops/q3")).json()
    assert (queued["state"], queued["verdict"], queued["pid"]) == ("ended", "killed", None)
    await box.call("DELETE", "/v1/ops/q0")
    await until(lambda: state(box, "q2", "running"))
    document = (await box.call("GET", "/v1/ops/q2")).json()
    assert document["usage"]["queued"] > 0


async def test_time_queued_in_the_gateway_is_in_the_record(box: Sidecar) -> None:
    answer = await box.call("POST", "/v1/exec", json={"command": "true"}, headers={"X-Sandlot-Queued": "2.5"})
    assert 2.5 <= answer.json()["usage"]["queued"] < 5


async def test_cpu_seconds_are_counted(box: Sidecar) -> None:
    answer = await box.exec(
        "python3 -c 'import time\nt=time.process_time()\nwhile time.process_time()-t<0.3: pass'"
    )
    assert 0.25 < answer["usage"]["cpu"] < 3


@pytest.mark.longest
async def test_a_thousand_ops_leave_nothing(box: Sidecar) -> None:
    for _ in range(5):
        await box.exec("true")
    before = box.descriptors()
    for _ in range(1000):
        assert (await box.exec("true"))["exit_code"] == 0
    await until(lambda: settled(box, before), seconds=30)
    assert await count(box, "true") == 0


PACKETS = """
import fcntl, os
fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)
fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_DIRECT)
for number in range(200):
    os.write(1, b"%05d\\n" % number)
"""


async def test_output_in_packets_is_kept_whole(box: Sidecar) -> None:
    """Each read of such a pipe gives one write, however small."""
    answer = await box.exec(["python3", "-c", PACKETS])
    assert answer["stdout"] == "".join(f"{number:05d}\n" for number in range(200))
    assert not answer["truncated"]
