"""The Python contexts of a sandbox: ops that run the program of a context, with the context's name in their ids.

The gateway keeps nothing of them: a context outlives the gateway that began it, and any gateway finds it.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any

from sandlot_contract import python_driver
from sandlot_contract.verdicts import CommandVerdict

from sandlot_gateway.data.pool import Answer
from sandlot_gateway.python_context.program import driver, request_line

from .failures import EnvdFailure, invalid
from .op_ends import loss
from .process import CONTEXT, stdin_target
from .sidecar_call import SidecarCall, query

DEFAULT = "default"
_NAME = re.compile(r"[0-9a-z]{1,64}\Z")
_MOST_PROGRAMS = 100  # of the default context, one after the other; each costs a request more


class Ended(EnvdFailure):
    """Raised for a request to a program that has ended since it was found."""


@dataclass(frozen=True, slots=True)
class Found:
    """The latest program of a context; `op` is None: it has not been started."""

    name: str
    op_id: str
    op: dict[str, Any] | None
    before: dict[str, Any] | None = None  # the op of the program before one that has not been started

    @property
    def running(self) -> bool:
        return self.op is not None and self.op["state"] != "ended"

    @property
    def is_default(self) -> bool:
        return self.name == DEFAULT


def new() -> Found:
    """Return a context that has not been started."""
    name = secrets.token_hex(16)
    return Found(name, CONTEXT + name, None)


async def find(call: SidecarCall, name: str) -> Found:
    """Return a context. Raises EnvdFailure for one that never was, was removed, or has been lost.

    The default context has a further program when one has ended. Another context ends with its program, whose
    directory nobody knows then.
    """
    if name == DEFAULT:
        return await _default(call)
    if not _NAME.match(name):
        raise _not_found(name, "")
    found = Found(name, CONTEXT + name, await _op(call, CONTEXT + name))
    if not found.running:
        if found.op is not None:
            check_loss(call, found)
        raise _not_found(name, _why(found.op))
    return found


async def start(call: SidecarCall, found: Found, cwd: str | None = None) -> str:
    """Start a context's program; return its directory. Raises EnvdFailure."""
    place = await _directory(call, cwd or ".")
    spec = {
        "id": found.op_id,
        "command": ["python3", "-c", driver(), str(python_driver.TOTAL)],
        "cwd": place,
        "detach": True,
        "stdin": True,
        "output_limit": python_driver.TOTAL,
    }
    answer = await call.fetch("POST", "/v1/ops?wait=0", json=spec)
    # A conflict: a gateway of another version has started it at the same time.
    if answer.status not in (200, 202) and not (answer.status == 409 and _code(answer) == "op_conflict"):
        raise call.refused(answer.status, answer.body)
    return place


async def send(call: SidecarCall, op_id: str, **fields: Any) -> None:
    """Send a request to a context's program. Raises EnvdFailure, and Ended."""
    try:
        line = request_line(**fields)
    except UnicodeEncodeError as error:
        raise invalid("code", "is not valid Unicode: it has a lone surrogate; remove it") from error
    answer = await call.fetch("POST", stdin_target(op_id), body=line)
    if answer.status in (409, 410) and _code(answer) in ("op_ended", "expired"):
        raise Ended("not_found", "the context was not found: its program has just ended")
    if answer.status != 200:
        raise call.refused(answer.status, answer.body)


async def kill(call: SidecarCall, op_id: str) -> None:
    answer = await call.fetch("DELETE", f"/v1/ops/{op_id}")
    if answer.status not in (200, 404, 410):
        raise call.refused(answer.status, answer.body)


async def running(call: SidecarCall) -> list[tuple[str, str | None]]:
    """Return the names of the running contexts, and their directories."""
    ops = (await call.json("GET", "/v1/ops?spec=1"))["ops"]
    return [
        (op["op_id"].removeprefix(CONTEXT).partition(".")[0], op["spec"]["cwd"])
        for op in ops
        if op["op_id"].startswith(CONTEXT) and op["state"] != "ended" and op["spec"] is not None
    ]


def check_loss(call: SidecarCall, found: Found) -> None:
    """Raise EnvdFailure if the infrastructure has ended the context, or may have; the code's own end is no loss.

    After a while nobody knows. As a result of the next cell it could be a sample that failed by a loss.
    """
    op = found.op or found.before
    if op is None or op["state"] != "ended":
        return
    lost = loss(op, sandbox_id=call.route.sandbox_id)
    if lost is not None:
        raise lost
    if op.get("verdict") is None:
        then = "restart it, or create another one" if found.is_default else "create another one"
        raise _not_found(found.name, f": it ended a while ago, and why is no longer known; {then}")


def next_program(found: Found) -> Found:
    """Return the program of the default context after one that has ended. Raises EnvdFailure after too many."""
    number = int(found.op_id.partition(".")[2] or 1) + 1
    if number > _MOST_PROGRAMS:
        text = f"its program has ended {_MOST_PROGRAMS} times: create another context, or another sandbox"
        raise EnvdFailure("not_found", f"the context {DEFAULT} has ended: {text}")
    return Found(DEFAULT, f"{CONTEXT}{DEFAULT}.{number}", None, found.op)


async def _default(call: SidecarCall) -> Found:
    found = Found(DEFAULT, CONTEXT + DEFAULT, None)
    while True:
        op = await _op(call, found.op_id)
        if op is None:
            return found
        found = Found(DEFAULT, found.op_id, op)
        if found.running:
            return found
        found = next_program(found)


async def _op(call: SidecarCall, op_id: str) -> dict[str, Any] | None:
    """Return an op's document; that of one whose end is no longer known has no verdict."""
    answer = await call.fetch("GET", f"/v1/ops/{op_id}")
    if answer.status == 404:
        return None
    if answer.status == 410 and _code(answer) == "expired":
        return {"op_id": op_id, "state": "ended", "verdict": None}
    if answer.status != 200:
        raise call.refused(answer.status, answer.body)
    return answer.json()


async def _directory(call: SidecarCall, path: str) -> str:
    """Return a directory's path in the sandbox. Raises EnvdFailure."""
    answer = await call.fetch("GET", f"/v1/files/stat?{query(path=path, follow=1)}")
    if answer.status == 200 and answer.json()["type"] == "dir":
        return answer.json()["path"]
    if answer.status in (200, 404):
        raise invalid("cwd", f"{path[:200]!r} is no directory of the sandbox: create it first")
    raise call.refused(answer.status, answer.body)


def _code(answer: Answer) -> str:
    return str(answer.json().get("error"))


def _why(op: dict[str, Any] | None) -> str:
    if op is None or op.get("verdict") == CommandVerdict.KILLED:
        return ""
    return f": its program has ended ({op['verdict']}); create another one"


def _not_found(name: str, why: str) -> EnvdFailure:
    return EnvdFailure("not_found", f"context {name[:100]!r} was not found{why}")
