"""What a command session does, each sentence of the data plane's page as a test over the real surface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from connectrpc.code import Code
from sandlot_gateway.rpc.generated import command_session_pb2 as m

from tests.prime_rpc.support import Box, Seen, bash, new_session, refused, selector

pytestmark = pytest.mark.root


async def test_command_has_start_output_and_end(box: Box):
    seen = await box.run("echo out $A; echo err >&2; pwd; exit 3", envs={"A": "b"}, cwd="/tmp")
    assert (seen.stdout, seen.stderr) == (b"out b\n/tmp\n", b"err\n")
    assert seen.end is not None
    assert (seen.end.exit_code, seen.end.exited, seen.end.status) == (3, True, "exit status 3")
    assert seen.pid is not None
    assert not seen.end.HasField("error")


async def test_death_of_a_signal_is_negative(box: Box):
    seen = await box.run("kill -9 $$")
    assert seen.end is not None
    assert (seen.end.exit_code, seen.end.exited, seen.end.status) == (-9, False, "signal: 9")


async def test_other_programs_than_bash(box: Box):
    command = m.CommandSpec(cmd="/usr/bin/printf", args=["%s-%s", "a b", "c"])
    assert (await Seen().read(box.start(m.StartRequest(command=command)))).stdout == b"a b-c"
    missing = m.CommandSpec(cmd="no-such-program")
    seen = await Seen().read(box.start(m.StartRequest(command=missing)))
    assert seen.end is not None
    assert seen.end.exit_code == 127


async def test_command_that_no_argv_could_carry(box: Box):
    assert len((await box.run("echo " + "x" * 1_000_000)).stdout) == 1_000_001


async def test_output_comes_while_the_command_runs(box: Box):
    session = new_session()
    stream, seen = box.start(bash("echo first; read x; echo $x", session_uuid=session, stdin=True)), Seen()
    await seen.until(stream, b"first\n")
    await box.write(session, b"second\n")
    await seen.read(stream)
    assert seen.stdout == b"first\nsecond\n"


async def test_end_of_the_command_is_enough(box: Box):
    seen = await box.run("sleep 4001 & echo started")
    assert seen.stdout == b"started\n"
    assert await box.running("sleep 4001") == 1


async def test_large_output_arrives_whole(box: Box):
    seen = await box.run("head -c 20000000 /dev/zero | tr '\\0' x")
    assert len(seen.stdout) == 20_000_000


async def test_deadline_kills_the_whole_tree(box: Box):
    with refused(Code.DEADLINE_EXCEEDED):
        await box.run("setsid sleep 4002 & sleep 4002", timeout=0.5)
    await box.until_running("sleep 4002", 0)


async def test_deadline_is_the_sidecars_to_hold(box: Box):
    """Over the bare wire: the client's own deadline would hide that the server never answers."""
    message = bash("echo partial; sleep 4003").SerializeToString()
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.post(
            f"{box.base}/command_session.CommandSession/Start",
            content=b"\0" + len(message).to_bytes(4, "big") + message,
            headers={
                **box.headers,
                "content-type": "application/connect+proto",
                "connect-timeout-ms": "2000",
            },
        )
    assert answer.status_code == 200
    assert b"partial" in answer.content
    assert b'"code": "deadline_exceeded"' in answer.content
    assert b"time limit of 2 s" in answer.content
    await box.until_running("sleep 4003", 0)


async def test_leaving_kills_a_plain_command(box: Box):
    stream, seen = box.start(bash("echo here; sleep 4004")), Seen()
    await seen.until(stream, b"here")
    await close(stream)
    await box.until_running("sleep 4004", 0)


async def test_leaving_does_not_kill_a_session(box: Box):
    session = new_session()
    request = bash("echo here; read x; echo got $x; exit 7", session_uuid=session, stdin=True)
    stream, seen = box.start(request), Seen()
    await seen.until(stream, b"here")
    await close(stream)
    attached, again = box.attach(session), Seen()
    again.add((await anext(attached)).event)
    assert again.pid == seen.pid
    await box.write(session, b"on\n")
    await again.read(attached)
    assert again.stdout == b"got on\n"  # nothing of what came before
    assert again.end is not None
    assert again.end.exit_code == 7


async def test_repeated_start_attaches(box: Box):
    session = new_session()
    request = bash("echo $$ >> /tmp/started; echo here; read x", session_uuid=session, stdin=True)
    first, seen = box.start(request), Seen()
    await seen.until(first, b"here")
    second, again = box.start(request), Seen()
    await again.until(second, b"here")
    assert again.pid == seen.pid
    await box.write(session, b"\n")
    for stream, into in ((first, seen), (second, again)):
        await into.read(stream)
        assert into.end is not None
    # And after the end: the same once more.
    late = await Seen().read(box.start(request))
    assert (late.pid, late.stdout, late.end) == (seen.pid, b"here\n", seen.end)
    assert (await box.run("wc -l < /tmp/started")).stdout.strip() == b"1"


async def test_two_equal_starts_at_once_run_once(box: Box):
    request = bash("echo once >> /tmp/once; cat /tmp/once", session_uuid=new_session())
    seen = await asyncio.gather(*(Seen().read(box.start(request)) for _ in range(10)))
    assert {each.stdout for each in seen} == {b"once\n"}


async def test_another_spec_under_the_same_uuid_is_refused(box: Box):
    session = new_session()
    await box.run("true", session_uuid=session)
    with refused(Code.FAILED_PRECONDITION):
        await box.run("false", session_uuid=session)


async def test_end_is_kept_for_those_who_come_late(box: Box):
    session = new_session()
    first = await box.run("echo gone; exit 5", session_uuid=session)
    late = await Seen().read(box.attach(session))
    assert (late.pid, late.stdout, late.end) == (first.pid, b"", first.end)


async def test_input_is_written_once(box: Box):
    session = new_session()
    stream, seen = box.start(bash("head -c 12", session_uuid=session, stdin=True)), Seen()
    await seen.begin(stream)
    for text, repeat in ((b"one ", "a"), (b"two ", "b"), (b"one ", "a"), (b"end.", "c")):
        await box.write(session, text, repeat=repeat)
    await seen.read(stream)
    assert seen.stdout == b"one two end."
    await box.write(
        session, b"end.", repeat="c"
    )  # the first answer may have been lost with the process's end
    with refused(Code.FAILED_PRECONDITION):
        await box.write(session, b"more", repeat="d")


async def test_signal_is_sent_once(box: Box):
    session = new_session()
    script = "trap 'echo term' TERM; echo ready; while read x; do echo $x; done"
    stream, seen = box.start(bash(script, session_uuid=session, stdin=True)), Seen()
    await seen.until(stream, b"ready\n")
    await box.signal(session, m.SIGNAL_SIGTERM, repeat="s1")
    await seen.until(stream, b"term\n")
    await box.signal(session, m.SIGNAL_SIGTERM, repeat="s1")
    await box.write(session, b"one\n")
    await seen.until(stream, b"one\n")
    await box.signal(session, m.SIGNAL_SIGTERM, repeat="s2")
    await seen.until(stream, b"one\nterm\n")
    await box.signal(session, m.SIGNAL_SIGKILL)
    await seen.read(stream)
    assert seen.stdout == b"ready\nterm\none\nterm\n"
    assert seen.end is not None
    assert seen.end.exit_code == -9
    await box.signal(session, m.SIGNAL_SIGKILL)  # of one that has ended: nothing to do


async def test_kill_takes_the_children_along(box: Box):
    session = new_session()
    stream, seen = box.start(bash("setsid sleep 4005 & echo ready; sleep 4005", session_uuid=session)), Seen()
    await seen.until(stream, b"ready")
    await box.signal(session, m.SIGNAL_SIGKILL)
    await seen.read(stream)
    await box.until_running("sleep 4005", 0)


async def test_terminal(box: Box):
    session = new_session()
    size = m.PTY(size=m.PTY.Size(cols=100, rows=30))
    stream, seen = box.start(bash("stty size; read x; stty size", session_uuid=session, pty=size)), Seen()
    while b"30 100" not in seen.pty:
        seen.add((await anext(stream)).event)
    client = box.client()
    wider = m.UpdateRequest(session=selector(session), pty=m.PTY(size=m.PTY.Size(cols=120, rows=40)))
    await client.update(wider, headers=box.headers)
    given = m.SendInputRequest(session=selector(session), input=m.CommandInput(pty=b"x\n"))
    await client.send_input(given, headers=box.headers)
    await seen.read(stream)
    assert b"40 120" in seen.pty
    assert seen.stdout == b""


async def test_resize_without_a_terminal_is_refused(box: Box):
    session = new_session()
    stream, seen = box.start(bash("echo ready; read x", session_uuid=session, stdin=True)), Seen()
    await seen.until(stream, b"ready")
    request = m.UpdateRequest(session=selector(session), pty=m.PTY(size=m.PTY.Size(cols=1, rows=1)))
    with refused(Code.FAILED_PRECONDITION):
        await box.client().update(request, headers=box.headers)
    await box.signal(session, m.SIGNAL_SIGKILL)
    await seen.read(stream)


async def test_input_as_a_stream(box: Box):
    session = new_session()
    stream, seen = box.start(bash("head -c 6", session_uuid=session, stdin=True)), Seen()
    await seen.begin(stream)

    async def messages() -> AsyncIterator[m.StreamInputRequest]:
        yield m.StreamInputRequest(start=m.StreamInputRequest.StartEvent(session=selector(session)))
        yield m.StreamInputRequest(keepalive=m.StreamInputRequest.KeepAlive())
        for text in (b"abc", b"def"):
            data = m.StreamInputRequest.DataEvent(input=m.CommandInput(stdin=text))
            yield m.StreamInputRequest(data=data)

    await box.client().stream_input(messages(), headers=box.headers)
    await seen.read(stream)
    assert seen.stdout == b"abcdef"


async def test_stream_of_input_begins_with_its_session(box: Box):
    async def messages() -> AsyncIterator[m.StreamInputRequest]:
        data = m.StreamInputRequest.DataEvent(input=m.CommandInput(stdin=b"x"))
        yield m.StreamInputRequest(data=data)

    with refused(Code.INVALID_ARGUMENT, "start"):
        await box.client().stream_input(messages(), headers=box.headers)


async def test_list_shows_what_runs(box: Box):
    session = new_session()
    request = bash("echo ready; read x", session_uuid=session, stdin=True, envs={"A": "b"}, cwd="/tmp")
    stream, seen = box.start(request), Seen()
    await seen.until(stream, b"ready")
    info = (await box.list())[session]
    assert (info.pid, info.command) == (seen.pid, request.command)
    by_pid = m.CommandSessionSelector(pid=info.pid)
    end = m.SendSignalRequest(session=by_pid, signal=m.SIGNAL_SIGKILL)
    await box.client().send_signal(end, headers=box.headers)
    await seen.read(stream)
    assert session not in await box.list()


@pytest.mark.slow
async def test_quiet_stream_is_kept_alive(box: Box):
    assert (await box.run("sleep 17")).keepalives >= 1


async def test_unknown_sessions(box: Box):
    with refused(Code.NOT_FOUND):
        await Seen().read(box.attach(new_session()))
    with refused(Code.NOT_FOUND):
        await box.write(new_session(), b"x")
    with refused(Code.NOT_FOUND):
        await box.signal(new_session(), m.SIGNAL_SIGTERM)
    by_pid = m.ConnectRequest(session=m.CommandSessionSelector(pid=4_000_000))
    with refused(Code.NOT_FOUND):
        await Seen().read(box.client().connect(by_pid, headers=box.headers))


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (m.StartRequest(), "command.cmd"),
        (bash("true", cwd="/no/such/place"), "cwd"),
        (bash("true", user="no-such-user"), "user"),
        (bash("true", session_uuid="not an id"), "session_uuid"),
        (bash("true", session_uuid=".."), "session_uuid"),
        (bash("true", pty=m.PTY()), "pty.size"),
        (bash("true", pty=m.PTY(size=m.PTY.Size())), "pty.cols"),
        (bash("true", envs={"A=B": "c"}), "env"),
        (bash("tr\0ue"), "command"),
    ],
)
async def test_what_cannot_be_started_says_which_field(box: Box, request_: m.StartRequest, field: str):
    with refused(Code.INVALID_ARGUMENT, field):
        await Seen().read(box.start(request_))


async def test_bad_signals_and_inputs(box: Box):
    with refused(Code.INVALID_ARGUMENT, "signal"):
        await box.signal(new_session(), m.SIGNAL_UNSPECIFIED)
    with refused(Code.INVALID_ARGUMENT, "input"):
        request = m.SendInputRequest(session=selector(new_session()))
        await box.client().send_input(request, headers=box.headers)
    with refused(Code.INVALID_ARGUMENT, "session"):
        await box.client().send_signal(m.SendSignalRequest(signal=m.SIGNAL_SIGTERM), headers=box.headers)


async def test_without_the_sandboxs_token(box: Box):
    stranger = Box(url=box.url, api_key=box.api_key, auth={**box.auth, "token": "sct_x"}, sandbox_id="x")
    with refused(Code.UNAUTHENTICATED):
        await stranger.run("true")
    with refused(Code.UNAUTHENTICATED):
        await stranger.write(new_session(), b"x")


async def test_ended_and_unknown_sandboxes_are_not_found(new_box: Callable[[], Box]):
    ended = new_box()
    session = new_session()
    stream, seen = ended.start(bash("echo ready; sleep 4006", session_uuid=session)), Seen()
    await seen.until(stream, b"ready")
    ended.delete()
    with refused(Code.NOT_FOUND):
        await seen.read(stream)
    with refused(Code.NOT_FOUND):
        await ended.run("true")
    with refused(Code.NOT_FOUND):
        await ended.write(session, b"x")


@pytest.mark.parametrize(
    ("method", "path", "content_type", "body", "status", "code"),
    [
        ("POST", "Nothing", "application/proto", b"", 501, "unimplemented"),
        ("POST", "", "application/proto", b"", 501, "unimplemented"),
        ("GET", "List", "application/proto", b"", 405, "unimplemented"),
        ("POST", "Start", "application/grpc", b"", 415, "invalid_argument"),
        ("POST", "Start", "application/proto", b"", 415, "invalid_argument"),
        ("POST", "List", "text/plain", b"", 415, "invalid_argument"),
        ("POST", "SendInput", "application/proto", b"\xff\xff", 400, "invalid_argument"),
        ("POST", "SendInput", "application/json", b"{", 400, "invalid_argument"),
    ],
)
def test_what_is_no_call_is_said_in_json(
    box: Box, method: str, path: str, content_type: str, body: bytes, status: int, code: str
):
    answer = httpx.request(
        method,
        f"{box.base}/command_session.CommandSession/{path}",
        content=body,
        headers={**box.headers, "content-type": content_type},
    )
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["message"]


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\xff\xff\xff\xff", b"\0\0\0\0\2\xff\xff", b"\7\0\0\0\0"])
def test_broken_envelopes_end_the_stream_with_an_error(box: Box, body: bytes):
    answer = httpx.post(
        f"{box.base}/command_session.CommandSession/Start",
        content=body,
        headers={**box.headers, "content-type": "application/connect+proto"},
    )
    assert answer.status_code == 200
    assert b'"error"' in answer.content


async def test_json_is_spoken_too(box: Box):
    session = new_session()
    stream, seen = box.start(bash("echo ready; read x", session_uuid=session, stdin=True)), Seen()
    await seen.until(stream, b"ready")
    url = f"{box.base}/command_session.CommandSession/"
    async with httpx.AsyncClient(headers=box.headers) as client:
        listed = (await client.post(url + "List", json={})).json()["sessions"]
        (info,) = [each for each in listed if each["sessionUuid"] == session]
        assert info["pid"] == seen.pid
        assert info["command"]["args"] == ["-c", "echo ready; read x"]
        asked = {"session": {"sessionUuid": session}, "signal": "SIGNAL_SIGKILL"}
        ended = await client.post(url + "SendSignal", json=asked)
        assert (ended.status_code, ended.json()) == (200, {})
    await seen.read(stream)
    assert seen.end is not None
    assert seen.end.exit_code == -9


async def close(stream: AsyncIterator[object]) -> None:
    await stream.aclose()  # type: ignore[attr-defined]
