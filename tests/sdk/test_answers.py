"""Every error answer of the contract becomes the exception that a caller can act on."""

from __future__ import annotations

import json

import pytest
from sandlot import errors
from sandlot._protocol.answers import error_code, error_for, retry_after


@pytest.mark.parametrize(
    ("status", "document", "path", "kind"),
    [
        (400, {"error": "bad_request", "message": "no", "field": "timeout"}, None, errors.BadRequest),
        (401, {"error": "unauthorized"}, None, errors.AuthError),
        (404, {"detail": "no such sandbox"}, None, errors.NotFound),
        (404, {"error": "not_found"}, "/x", errors.FileMissing),
        (409, {"error": "is_directory"}, "/x", errors.FileConflict),
        (409, {"error": "op_conflict"}, None, errors.OpConflict),
        (409, {"error": "not_claimed"}, None, errors.SandboxLost),
        (410, {"error": "expired"}, None, errors.OpExpired),
        (410, {"error": "ended", "verdict": "idle"}, None, errors.SandboxLost),
        (413, {"error": "too_large"}, "/x", errors.FileTooLarge),
        (403, {"error": "permission"}, "/x", errors.FileDenied),
        (507, {"error": "disk_full"}, "/x", errors.DiskFull),
        (408, {"error": "stdin_full"}, None, errors.Busy),
        (503, {"error": "busy"}, None, errors.Busy),
        (503, {"error": "internal"}, None, errors.ServerError),
        (502, {"error": "may_have_run"}, None, errors.ServerError),
        (502, {"error": "sandbox_not_found", "verdict": "node_lost"}, "/x", errors.SandboxLost),
        (418, {}, None, errors.ApiError),
    ],
)
def test_kinds(status: int, document: dict[str, str], path: str | None, kind: type[Exception]) -> None:
    found = error_for(status=status, headers={}, body=json.dumps(document).encode(), path=path)
    assert type(found) is kind


def test_details_reach_the_caller() -> None:
    busy = error_for(status=503, headers={"retry-after": "7"}, body=b'{"error":"busy"}')
    assert isinstance(busy, errors.Busy)
    assert busy.retry_after == 7.0
    bad = error_for(
        status=422, headers={}, body=b'{"detail":"bad","errors":[{"param":"cpu_cores","details":"no"}]}'
    )
    assert isinstance(bad, errors.BadRequest)
    assert (bad.field, str(bad)) == ("cpu", "cpu: bad")
    lost = error_for(
        status=502,
        headers={"x-sandlot-verdict": "evicted"},
        body=b'{"error":"sandbox_not_found"}',
        sandbox_id="sb-1",
    )
    assert isinstance(lost, errors.SandboxLost)
    assert (lost.verdict, lost.sandbox_id, lost.infrastructure) == ("evicted", "sb-1", True)


@pytest.mark.parametrize(
    ("field", "detail", "message"),
    [
        ("docker_image", "docker_image: docker_image: cannot pull x", "image: cannot pull x"),
        ("memory_gb", "memory_gb: at least 0.03", "memory: at least 0.03 (GiB)"),
        ("environment_vars.A=B", "environment_vars.A=B: no equals sign", "env.A=B: no equals sign"),
        ("pids", "pids: at least 16", "pids: at least 16"),
    ],
)
def test_a_refusal_names_the_sdks_argument_once(field: str, detail: str, message: str) -> None:
    body = json.dumps({"detail": detail, "errors": [{"param": field, "details": ""}]}).encode()
    assert str(error_for(status=422, headers={}, body=body)) == message


@pytest.mark.parametrize("verdict", ["deleted", "deadline", "idle", "oom"])
def test_an_end_that_is_not_the_infrastructures_is_told_apart(verdict: str) -> None:
    assert not errors.SandboxLost("gone", verdict=verdict).infrastructure


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'"x"', b'{"errors":[3]}', b"\xff\xfe"])
def test_any_body_gives_an_error_with_a_message(body: bytes) -> None:
    assert str(error_for(status=400, headers={}, body=body))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("0.25", 0.25),
        ("86399.5", 86399.5),
        ("86400", None),
        ("-0.5", None),
        ("nan", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
def test_a_server_says_when_to_come_again(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}) == seconds
    assert retry_after({}) is None


@pytest.mark.parametrize(
    ("body", "code"),
    [(b'{"error":"busy"}', "busy"), (b'{"error":7}', ""), (b'{"detail":"busy"}', ""), (b"[]", ""), (b"", "")],
)
def test_an_error_has_a_name_or_none(body: bytes, code: str) -> None:
    assert error_code(body) == code
