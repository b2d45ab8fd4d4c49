"""Leaves one record of each control call, whoever answers it: the middleware between the edge and the control API."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sandlot_gateway import logs
from sandlot_gateway.audit import call
from sandlot_gateway.audit.call import Call
from sandlot_gateway.audit.file import AuditFile, Stdout
from sandlot_gateway.audit.log import AuditLog, Counted
from sandlot_gateway.control.actions import Found, find
from sandlot_gateway.control.paths import is_control, is_e2b
from sandlot_gateway.credentials import bearer
from sandlot_gateway.data.answers import Message, Receive, Scope, Send
from sandlot_gateway.keys import Keys, plain_key
from sandlot_gateway.settings import Settings
from sandlot_gateway.tokens import Tokens

App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The escapes of ASCII output keep a record on one line, whatever a caller sends.
_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))
STDOUT = Path("-")
_LONGEST = 128  # characters of a caller's text; no valid id is longer
_MOST_IDS = 500  # in one record; a caller may name as many to delete
_HANDSHAKE = "WEBSOCKET"  # in place of a method; no route below /api/v1 takes one
_PROBES = frozenset({"/healthz", "/readyz"})
_REFUSED = (401, 403)
_ERRORS = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_timeout",
    409: "conflict",
    413: "body_too_large",
    422: "invalid",
    429: "quota",
    501: "not_implemented",
    502: "sandbox_unreachable",
    503: "unavailable",
    504: "unavailable",
    507: "storage_full",
}


class Audit:
    """Writes the records to `log`; with `changes_only`, none of a read that succeeds."""

    def __init__(
        self, log: AuditLog, *, keys: Keys, fingerprint: Callable[[str], str], changes_only: bool
    ) -> None:
        self._log = log
        self._keys = keys
        self._fingerprint = fingerprint
        self._changes_only = changes_only

    def open(self) -> None:
        """Open the log. Raises OSError if it cannot be written."""
        self._log.open()

    async def close(self, *, timeout: float) -> None:
        """Write the last records, within `timeout` seconds."""
        await self._log.close(timeout=timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, *, app: App) -> None:
        """Have `app` answer a request for the control API."""
        path: str = scope["path"]
        if path in _PROBES:
            await app(scope, receive, send)
            return
        began, clock = time.time(), time.perf_counter()
        found = find(scope.get("method", _HANDSHAKE), path)
        about = Call(id=found.id, credential=found.credential, sandbox=found.sandbox)
        call.begin(about)
        # Now, since a key may be withdrawn while its call runs.
        caller = self._caller(scope)
        observed = _Observed(send)
        try:
            await app(scope, receive, observed)
        finally:
            status = None if about.left else observed.status
            if self._is_recorded(path, found, status):
                record = {
                    "type": "audit",
                    "time": _iso(began),
                    "request": _text(logs.request_id.get()),
                    **self._resource(found, about),
                    **caller,
                    "status": status,
                    "error": _error(status, about),
                    "ms": round((time.perf_counter() - clock) * 1000, 1),
                }
                self._log.add(_ENCODER.encode(record).encode() + b"\n")

    def _is_recorded(self, path: str, found: Found, status: int | None) -> bool:
        if not is_control(path) and found.action.kind != "code":
            return status in _REFUSED
        return not self._changes_only or not found.action.reads or status is None or status >= 400

    def _caller(self, scope: Scope) -> dict[str, str | None]:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        token = bearer(headers.get(b"authorization", b""))
        if is_e2b(scope["path"]):
            token = plain_key(headers.get(b"x-api-key", b"").decode("latin-1"), self._keys)
        who = self._keys.find(token) if token else None
        client = scope.get("client")
        return {
            "tenant": who.name if who is not None else None,
            "role": who.role if who is not None else None,
            "key": self._fingerprint(token) if token else None,
            "peer": client[0] if client is not None else None,
        }

    def _resource(self, found: Found, about: Call) -> dict[str, Any]:
        resource: dict[str, Any] = {
            "action": found.action.name,
            "kind": found.action.kind,
            "id": _text(about.id) if about.credential is None else self._fingerprint(about.credential),
            "sandbox": _text(about.sandbox),
            "run": about.run,
        }
        if about.deleted is not None:
            resource["deleted"] = len(about.deleted)
            resource["ids"] = list(about.deleted[:_MOST_IDS])
        elif about.made is not None:
            resource["ids"] = list(about.made[:_MOST_IDS])
        return resource


def audit_of(settings: Settings, *, keys: Keys, tokens: Tokens, counted: Counted) -> Audit | None:
    """Return the audit of a gateway with these settings; None if there is no log for it."""
    if settings.audit_log is None:
        return None
    if settings.audit_log == STDOUT:
        log = AuditLog(Stdout(), where="on stdout", counted=counted)
    else:
        # The state directory hides a file from sandboxes of the host's root.
        path = settings.state_dir / settings.audit_log
        file = AuditFile(path, max_bytes=settings.audit_max, keep=settings.audit_keep)
        log = AuditLog(file, where=str(path), counted=counted)
    return Audit(log, keys=keys, fingerprint=tokens.fingerprint, changes_only=settings.audit_changes_only)


class _Observed:
    """A `send` that keeps the response's status; None until there is one."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
        await self._send(message)


def _error(status: int | None, about: Call) -> str | None:
    if status is None:
        return "no_answer"
    if status < 400:
        return None
    return about.error or _ERRORS.get(status, "refused" if status < 500 else "failed")


def _text(value: str | None) -> str | None:
    return value if value is None else value[:_LONGEST]


def _iso(now: float) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    return f"{seconds}.{int(now % 1 * 1000):03d}Z"
