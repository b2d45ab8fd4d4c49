"""What a process' stream says of each end of an op: a result if the code caused it, else an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sandlot_contract.frames import KEEP_ALIVE, START, STDERR, STDOUT
from sandlot_gateway.data.errors import WireError
from sandlot_gateway.e2b.events import ProcessEvents, document
from sandlot_gateway.e2b.failures import EnvdFailure

STARTED = json.dumps({"op_id": "e2b-1", "pid": 7}).encode()


def op(verdict: str, **more: Any) -> dict[str, Any]:
    return {"verdict": verdict, "exit_code": None, "signal": None, "message": None, **more}


@pytest.mark.parametrize(
    ("ended", "code", "text"),
    [
        (op("timeout"), "deadline_exceeded", "timeout"),
        (op("sandbox_ended", message="deleted"), "unavailable", "was not found"),
        (op("evicted"), "unavailable", "was not found"),
        (op("sandbox_broken"), "unavailable", "lost"),
        (op("sidecar_lost"), "unavailable", "lost"),
        (op("start_failed", message="cwd: no such directory"), "invalid_argument", "cwd"),
        (op("start_failed", message="user: unknown"), "unauthenticated", "user"),
    ],
)
def test_an_end_that_is_not_the_codes_own_is_an_error(ended: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(EnvdFailure, match=text) as raised:
        ProcessEvents(pty=False).of_end(ended, sandbox_id="sb-1")
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("ended", "code", "error"),
    [
        (op("exited", exit_code=0), 0, None),
        (op("exited", exit_code=3), 3, "exit status 3"),
        (op("signaled", exit_code=143, signal=15), 143, "signal: SIGTERM"),
        (op("killed", exit_code=137, signal=9), 137, "signal: SIGKILL"),
        (op("killed"), 137, None),
        (op("oom", exit_code=137, signal=9, message="too much memory"), 137, "oom: too much memory"),
        (op("disk_full", exit_code=1, message="full"), 1, "disk_full: full"),
        (op("pids_limit", exit_code=1), 1, "pids_limit: pids_limit"),
    ],
)
def test_the_codes_own_end_is_an_exit_code(ended: dict[str, Any], code: int, error: str | None) -> None:
    told = ProcessEvents(pty=False)
    assert told.of_frame(START, STARTED) == [{"event": {"start": {"pid": 7}}}]
    (last,) = told.of_end(ended, sandbox_id="sb-1")
    assert (last["event"]["end"]["exitCode"], last["event"]["end"].get("error")) == (code, error)


def test_the_start_comes_first_whatever_the_sidecar_sends() -> None:
    told = ProcessEvents(pty=False)
    assert told.of_frame(KEEP_ALIVE, b"") == []
    assert told.of_frame(STDERR, b"x") == []
    first, second = told.of_frame(START, STARTED)
    assert ("start" in first["event"], second["event"]["data"]) == (True, {"stderr": "eA=="})
    assert told.of_frame(KEEP_ALIVE, b"") == [{"event": {"keepalive": {}}}]
    assert told.of_frame(ord("?"), b"of a later sidecar") == []
    first, _ = ProcessEvents(pty=False).of_end(op("killed"), sandbox_id="sb-1")
    assert first == {"event": {"start": {"pid": 0}}}


def test_a_terminals_output_has_its_own_name() -> None:
    assert ProcessEvents(pty=True, told=True).of_frame(STDOUT, b"x") == [{"event": {"data": {"pty": "eA=="}}}]


def test_documents_of_hostile_names_are_read_and_others_refused() -> None:
    assert document(b'{"message": "\\udcff a"}') == {"message": "\ufffd a"}
    for data in (b"{", b"[]", b"\xff", b"[" * 100_000):
        with pytest.raises(WireError):
            document(data)
