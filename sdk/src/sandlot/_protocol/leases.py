"""Requests and answers about the leases of runs, and references to them: `ID`, or `ID@EPOCH` for one holder's."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from sandlot._protocol import accounts, checks
from sandlot._protocol.documents import Document
from sandlot.runs import RunCommands, RunInfo, RunReport, RunStarts, SlowCommand

VARIABLE = "SANDLOT_RUN_ID"


def path(run_id: str) -> str:
    return f"/runs/{checks.path_part(checks.run(run_id, name='run_id'), name='run_id')}"


def reference(text: str, *, name: str = "run_id") -> tuple[str, int | None]:
    """Parse a reference to a run."""
    run_id, at, epoch = text.partition("@")
    if at and not (epoch.isascii() and epoch.isdigit()):
        raise ValueError(f"{name}: must be a run or RUN@EPOCH with the number of its holder, not {text!r}")
    return checks.run(run_id, name=name), int(epoch) if at else None


def named(run_id: str | None) -> tuple[str, int | None] | None:
    """Return the run that the argument or else the environment names; "" is none."""
    if run_id is not None:
        return reference(run_id) if run_id else None
    text = os.environ.get(VARIABLE)
    return reference(text, name=VARIABLE) if text else None


class Inside:
    """SANDLOT_RUN_ID names a run until `leave`, and then what it named before. Runs of a process may overlap."""

    _all: ClassVar[list[Inside]] = []

    def __init__(self, ref: str) -> None:
        self._ref = ref
        self._pid = os.getpid()
        self._before = os.environ.get(VARIABLE)
        self._all.append(self)
        os.environ[VARIABLE] = ref

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that is in the run."""
        return self._pid != os.getpid()

    def leave(self) -> None:
        if self not in self._all:
            return
        later = self._all[self._all.index(self) + 1 :]
        self._all.remove(self)
        # One that was entered later must not bring back a run that this process has left.
        for other in later:
            if other._before == self._ref:
                other._before = self._before
                return
        if os.environ.get(VARIABLE) != self._ref:
            return
        if self._before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = self._before


def new_holder() -> str:
    """Return a text for one holder, by which people find its process."""
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{os.urandom(8).hex()}"


def begin_body(
    *,
    holder: str,
    grace: float,
    name: str | None,
    metadata: Mapping[str, str] | None,
    take_over: bool,
    end_sandboxes: bool,
    weight: int,
    priority: int,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "holder": holder,
        "grace_seconds": checks.seconds(grace, name="grace"),
        "take_over": take_over,
        "end_sandboxes": end_sandboxes,
    }
    if name is not None:
        body["name"] = name
    if metadata:
        body["metadata"] = checks.strings(metadata, name="metadata")
    if checks.weight(weight) != 1:  # else also servers that know no weights begin the run
        body["weight"] = weight
    if checks.priority(priority) != 0:
        body["priority"] = priority
    return body


def run_info(document: Document) -> RunInfo:
    return RunInfo(
        id=str(document.get("id", "")),
        state=document.get("state") or "ACTIVE",
        epoch=int(document.get("epoch") or 0),
        holder=document.get("holder") or "",
        grace=float(document.get("grace_seconds") or 0.0),
        name=document.get("name"),
        metadata=dict(document.get("metadata") or {}),
        created_at=document.get("created_at") or "",
        began_at=document.get("began_at") or "",
        renewed_at=document.get("renewed_at") or "",
        finished_at=document.get("finished_at"),
        sandboxes=dict(document.get("sandboxes") or {}),
        verdicts=dict(document.get("verdicts") or {}),
        weight=int(document.get("weight") or 1),
        priority=int(document.get("priority") or 0),
    )


def run_report(document: Document) -> RunReport:
    used: Document = document.get("usage") or {}
    commands: Document = document.get("commands") or {}
    slowest: list[Document] = commands.get("slowest") or []
    commands = commands | {"slowest": tuple(SlowCommand(**_known(SlowCommand, one)) for one in slowest)}
    return RunReport(
        run=run_info(document.get("run") or {}),
        ends=dict(document.get("ends") or {}),
        masked=dict(document.get("masked") or {}),
        starts=RunStarts(**_known(RunStarts, document.get("starts") or {})),
        usage=accounts.usage_row(used),
        usage_since=used.get("since") or "",
        commands=RunCommands(**_known(RunCommands, commands)),
    )


def _known(record: Any, document: Document) -> dict[str, Any]:
    """Return the fields that the record has: a newer server sends more."""
    return {one.name: document[one.name] for one in fields(record) if one.name in document}
