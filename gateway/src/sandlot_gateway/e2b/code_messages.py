"""The bodies of the code interpreter's requests, checked, and what a cell's answers are in its form; without I/O."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from sandlot_gateway.python_context.answers import Answer, BadOutput, media

from .failures import invalid
from .messages import Message

_LANGUAGES = ("python", "python3")
_FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
_OBJECTS = ("e2b/data", "e2b/chart")
_RESTARTED = "ContextRestarting"  # as E2B's server names it


class Execute(Message):
    code: str
    context_id: str | None = msgspec.field(name="context_id", default=None)
    language: str | None = None
    env_vars: dict[str, str] | None = msgspec.field(name="env_vars", default=None)

    def check(self) -> None:
        """Raise EnvdFailure, which names the field."""
        if self.context_id and self.language:
            raise invalid("language", "cannot be set with context_id, whose language it is: leave it out")
        check_language(self.language)
        for name, value in (self.env_vars or {}).items():
            if not name or "=" in name or "\0" in name + value:
                raise invalid(
                    "env_vars", f"{name[:100]!r} is no variable: leave out empty names, '=' and NUL"
                )


class NewContext(Message):
    language: str | None = None
    cwd: str | None = None


def check_language(language: str | None) -> None:
    """Raise EnvdFailure for a language that no context has."""
    if language and language.lower() not in _LANGUAGES:
        raise invalid(
            "language", f"only python is supported here, not {language[:100]!r}: run it by a command"
        )


def context(name: str, cwd: str | None) -> dict[str, Any]:
    return {"id": name, "language": "python", "cwd": cwd or "/"}


def error(name: str, value: str, traceback: str = "") -> dict[str, Any]:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def restarted(why: str) -> dict[str, Any]:
    """Return the error that tells of a lost state, which is the code's own doing."""
    return error(_RESTARTED, why)


def of_answer(answer: Answer) -> list[dict[str, Any]]:
    """Return what the client is sent for an answer to its own cell."""
    match answer.type:
        case "begin":
            return [{"type": "number_of_executions", "execution_count": answer.execution_count}]
        case "stdout" | "stderr":
            return [{"type": answer.type, "text": answer.text, "timestamp": time.time_ns()}]
        case "display" | "result":
            return _results(answer)
        case "done":
            return _done(answer)
        case _:
            return []


def _results(answer: Answer) -> list[dict[str, Any]]:
    """Return what a cell showed; nothing for an output that is not valid."""
    try:
        shown = media(answer.data, objects=_OBJECTS)
    except BadOutput:
        return []
    result: dict[str, Any] = {"type": "result", "is_main_result": answer.type == "result"}
    extra: dict[str, Any] = {}
    for kind, value in shown.items():
        field = _FIELDS.get(kind)
        if field is None:
            extra[kind] = value
        elif field == "text" and isinstance(value, str):
            result[field] = _unquoted(value)
        else:
            result[field] = value
    if extra:
        result["extra"] = extra
    return [result]


def _unquoted(text: str) -> str:
    """Return the text of a string's repr as E2B's server does: without the quotes around it."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _done(answer: Answer) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    if answer.truncated:
        text = "sandlot: more output than a cell may have was dropped\n"
        told.append({"type": "stderr", "text": text, "timestamp": time.time_ns()})
    if answer.status == "refused":
        told.append(
            restarted(f"the code did not run, since the state of the context is lost: {answer.message}")
        )
    elif answer.state_lost:
        told.append(restarted(f"the state of the context is lost: {answer.message}"))
    elif answer.error is not None:
        lines = answer.error.traceback
        told.append(error(answer.error.name, answer.error.value, "".join(lines)))
    return told
