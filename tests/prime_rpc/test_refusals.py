"""What a command session refuses, and with which code: unknown sessions, wrong fields, strangers, what is no call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from connectrpc.code import Code
from sandlot_gateway.rpc.generated import command_session_pb2 as m

from tests import plain_http
from tests.prime_rpc.support import Box, Seen, bash, new_session, refused, selector

pytestmark = pytest.mark.root


async def test_resize_without_a_terminal_is_refused(box: Box):
    session = new_session()
    stream, seen = box.start(bash("echo ready; read x", session_uuid=session, stdin=True)), Seen()
    await seen.until(stream, b"ready")
    request = m.UpdateRequest(session=selector(session), pty=m.PTY(size=m.PTY.Size(cols=1, rows=1)))
    with refused(Code.FAILED_PRECONDITION):
        await box.client().update(request, headers=box.headers)
    await box.signal(session, m.SIGNAL_SIGKILL)
    await seen.read(stream)


async def test_stream_of_input_begins_with_its_session(box: Box):
    async def messages() -> AsyncIterator[m.StreamInputRequest]:
        data = m.StreamInputRequest.DataEvent(input=m.CommandInput(stdin=b"x"))
        yield m.StreamInputRequest(data=data)

    with refused(Code.INVALID_ARGUMENT, "start"):
        await box.client().stream_input(messages(), headers=box.headers)


async def test_another_spec_under_the_same_uuid_is_refused(box: Box):
    session = new_session()
    await box.run("true", session_uuid=session)
    with refused(Code.FAILED_PRECONDITION):
        await box.run("false", session_uuid=session)


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
    answer = plain_http.request(
        method,
        f"{box.base}/command_session.CommandSession/{path}",
        content=body,
        headers={**box.headers, "content-type": content_type},
    )
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["message"]


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\xff\xff\xff\xff", b"\0\0\0\0\2\xff\xff", b"\7\0\0\0\0"])
def test_broken_envelopes_end_the_stream_with_an_error(box: Box, body: bytes):
    answer = plain_http.post(
        f"{box.base}/command_session.CommandSession/Start",
        content=body,
        headers={**box.headers, "content-type": "application/connect+proto"},
    )
    assert answer.status_code == 200
    assert b'"error"' in answer.content


def test_e2bs_wire_is_off_unless_the_operator_wants_it(box: Box):
    headers = {
        "X-API-Key": box.api_key,
        "X-Access-Token": box.auth["token"],
        "E2b-Sandbox-Id": box.sandbox_id,
    }
    for method, path in (("GET", "v2/sandboxes"), ("GET", "files?path=/etc/hostname"), ("POST", "files")):
        answer = plain_http.request(method, f"{box.url}/e2b/{path}", headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (404, "no_such_route")
