"""Maps an HTTP error response to an exception type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from sandlot.errors import (
    ApiError,
    AuthError,
    BadRequest,
    Busy,
    Conflict,
    DiskFull,
    FileConflict,
    FileDenied,
    FileError,
    FileMissing,
    FileTooLarge,
    NotFound,
    OpConflict,
    OpExpired,
    RunLost,
    SandboxLost,
    SandlotError,
    ServerError,
    StartFailed,
)
from sandlot.models import ExecResult, Exit, Verdict

LOST_OPS = frozenset((Verdict.SANDBOX_ENDED, Verdict.SANDBOX_BROKEN, Verdict.SIDECAR_LOST, Verdict.EVICTED))
_FILE_CONFLICTS = frozenset(("exists", "not_empty", "is_directory", "not_a_directory"))

_CONFLICTS: dict[str, type[Conflict]] = {
    "op_conflict": OpConflict,
    "run_ended": RunLost,
    "run_lost": RunLost,
    "run_taken_over": RunLost,
}


def _object(body: bytes) -> dict[str, object]:
    try:
        value: object = json.loads(body)
    except ValueError:
        return {}
    return cast(dict[str, object], value) if isinstance(value, dict) else {}


# Wire field -> SDK argument, where their names differ; sizes on the wire are GiB.
_ARGUMENTS = {
    "docker_image": "image",
    "cpu_cores": "cpu",
    "memory_gb": "memory",
    "disk_size_gb": "disk",
    "environment_vars": "env",
    "timeout_seconds": "timeout",
    "timeout_minutes": "timeout",
    "idle_timeout_seconds": "idle_timeout",
    "working_dir": "cwd",
}


def _named(message: str, field: str | None) -> tuple[str, str | None]:
    """Return message and field with the name of the SDK's argument."""
    if not field:
        return message, field
    head, dot, rest = field.partition(".")
    name = _ARGUMENTS.get(head, head) + dot + rest
    while message.startswith(f"{field}: "):
        message = message.removeprefix(f"{field}: ")
    unit = " (GiB)" if head.endswith("_gb") else ""
    return (message if message.startswith(name) else f"{name}: {message}{unit}"), name


def _first_field(document: dict[str, object]) -> str | None:
    field = document.get("field")
    if isinstance(field, str):
        return field
    errors = document.get("errors")
    if isinstance(errors, list) and errors:
        first = cast(list[object], errors)[0]
        if isinstance(first, dict):
            param = cast(dict[str, object], first).get("param")
            return param if isinstance(param, str) else None
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, or None if it is absent or a date."""
    try:
        value = float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return value if 0 <= value < 86400 else None


def error_code(body: bytes) -> str:
    """Return the error code in the body, or an empty string."""
    code = _object(body).get("error")
    return code if isinstance(code, str) else ""


def error_for(
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    sandbox_id: str = "",
    path: str | None = None,
) -> SandlotError:
    """Return the exception for an error response; file operations pass their `path`."""
    document = _object(body)
    code = str(document.get("error") or "")
    text = document.get("message") or document.get("detail") or code
    message = str(text) if text else body[:200].decode("utf-8", "replace") or f"HTTP {status}"
    verdict = document.get("verdict") or headers.get("x-sandlot-verdict")
    if (status == 502 and code == "sandbox_not_found") or (status == 410 and code != "expired"):
        return SandboxLost(message, verdict=str(verdict or "sandbox_lost"), sandbox_id=sandbox_id)
    if code == "not_claimed":
        return SandboxLost(message, verdict="sandbox_lost", sandbox_id=sandbox_id)
    if path is not None:
        error = _file_error(status=status, code=code, message=message, path=path)
        if error is not None:
            return error
    if status in (400, 416, 422, 431):
        message, field = _named(message, _first_field(document))
        return BadRequest(message, status=status, code=code, field=field)
    if status in (401, 403):
        return AuthError(message, status=status, code=code)
    if status == 404:
        return NotFound(message, status=status, code=code)
    if status == 409:
        return _CONFLICTS.get(code, Conflict)(message, status=status, code=code)
    if status == 410:
        return OpExpired(message, status=status, code=code)
    if status in (408, 429) or (status == 503 and code != "internal"):
        return Busy(message, status=status, code=code or "busy", retry_after=retry_after(headers))
    if status >= 500:
        return ServerError(message, status=status, code=code)
    return ApiError(message, status=status, code=code)


def _file_error(*, status: int, code: str, message: str, path: str) -> SandlotError | None:
    if status == 404 and code in ("not_found", ""):
        return FileMissing(f"{path}: no such file or directory", status=status, code=code, path=path)
    if status == 409 and code in _FILE_CONFLICTS:
        return FileConflict(f"{path}: {message}", status=status, code=code, path=path)
    if status == 403:
        return FileDenied(f"{path}: {message}", status=status, code=code, path=path)
    if code == "bad_path":
        return FileError(f"{path}: {message}", status=status, code=code, path=path)
    if status == 413:
        return FileTooLarge(f"{path}: {message}", status=status, code=code, path=path)
    if status == 507:
        return DiskFull(f"{path}: {message}", status=status, code=code, path=path)
    return None


def end_error(end: ExecResult | Exit, *, sandbox_id: str) -> SandlotError | None:
    """Return the exception for an op whose end is not the code's own result, else None."""
    if end.verdict in LOST_OPS:
        message = end.message or f"the command was lost: {end.verdict}"
        return SandboxLost(message, verdict=str(end.verdict), sandbox_id=sandbox_id)
    if end.verdict == Verdict.START_FAILED:
        return StartFailed(end.message or "the command could not be started", code="start_failed")
    return None
