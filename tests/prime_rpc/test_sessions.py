"""What a command session does, each sentence of the data plane's page as a test over the real surface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from connectrpc.code import Code
from sandlot_gateway.rpc.generated import command_session_pb2 as m

from tests import plain_http
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
    async with plain_http.async_client() as client:
        answer = await client.post(
            f"{box.base}/command_session.CommandSession/Start",
            content=b"\0" + len(message).to_bytes(4, "big") + message,
            headers={
                **box.headers,
                "content-type": "application/connect+proto",
                "connect-timeout-ms": "6000",
            },
        )
    assert answer.status_code == 200
    assert b"partial" in answer.content
    assert b'"code": "deadline_exceeded"' in answer.content
    assert b"time limit of 6 s" in answer.content
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
    assert (await box.run("sleep 22")).keepalives >= 1  # of 15 s


async def test_json_is_spoken_too(box: Box):
    session = new_session()
    stream, seen = box.start(bash("echo ready; read x", session_uuid=session, stdin=True)), Seen()
    await seen.until(stream, b"ready")
    url = f"{box.base}/command_session.CommandSession/"
    async with plain_http.async_client(headers=box.headers, timeout=60) as client:
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
