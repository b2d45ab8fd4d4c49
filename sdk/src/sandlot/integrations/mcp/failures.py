"""Tells a language model why a tool failed, whose failure it is, and what to do: a tool error of the protocol."""

from __future__ import annotations

from typing import Any

from sandlot.errors import (
    AuthError,
    BadRequest,
    Busy,
    ConfigError,
    Conflict,
    ConnectionFailed,
    FileError,
    NotFound,
    OpExpired,
    SandboxLost,
    SandlotError,
    WaitTimeout,
)

# Not in `structuredContent`, which must match the tool's schema.
ABOUT = "sandlot/error"

_ADVICE = {
    "sandbox_lost": "The infrastructure failed, not your code. Call create_sandbox for another sandbox and repeat the work there.",
    "sandbox_ended": "Its files are gone. Call create_sandbox for another one, with a longer timeout if it reached its own.",
    "unreachable": "The request may have been carried out. Try again; with the same op_id a command runs only once.",
    "busy": "Try again in some seconds, or delete sandboxes that you no longer need.",
    "not_found": "Use an id that a tool returned in this session; list_sandboxes shows the sandboxes.",
    "expired": "The command has run, and its output is no longer kept. Run it again if that does no harm.",
    "invalid": "Correct the arguments and call the tool again.",
    "file": "Look at the path with list_files.",
    "conflict": "Look at the present state, and call the tool again if it still makes sense.",
    "forbidden": "The user must check the server's API key.",
    "timeout": "Call the tool again with a longer wait_seconds.",
    "failed": "Try again later; if it stays, tell the user.",
}


def failure(error: SandlotError | ValueError | TimeoutError) -> dict[str, Any]:
    """Return the result of `tools/call` for this error, with its notes."""
    kind = _kind(error)
    message = "; ".join([str(error), *getattr(error, "__notes__", ())])
    about: dict[str, Any] = {"kind": kind, "infrastructure": False, "message": message}
    text = f"{kind}: {message}"
    if isinstance(error, SandboxLost):
        about |= {
            "verdict": error.verdict,
            "infrastructure": error.infrastructure,
            "sandbox_id": error.sandbox_id,
        }
        text = f"{kind} (verdict {error.verdict}): sandbox {error.sandbox_id or 'unknown'}: {message}"
    elif isinstance(error, ConnectionFailed | Busy):
        about["infrastructure"] = True
    elif isinstance(error, BadRequest) and error.field:
        about["field"] = error.field
    advice = _ADVICE[kind]
    return {
        "content": [{"type": "text", "text": f"{text.rstrip('.')}. {advice}"}],
        "isError": True,
        "_meta": {ABOUT: {**about, "advice": advice}},
    }


def _kind(error: Exception) -> str:
    if isinstance(error, SandboxLost):
        return "sandbox_lost" if error.infrastructure else "sandbox_ended"
    return next((kind for kinds, kind in _KINDS if isinstance(error, kinds)), "failed")


_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (ConnectionFailed, "unreachable"),
    (Busy, "busy"),
    (NotFound, "not_found"),
    (OpExpired, "expired"),
    (FileError, "file"),
    ((BadRequest, ValueError), "invalid"),
    (Conflict, "conflict"),
    ((AuthError, ConfigError), "forbidden"),
    ((WaitTimeout, TimeoutError), "timeout"),
)
