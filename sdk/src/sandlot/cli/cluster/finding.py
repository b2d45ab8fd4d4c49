"""One line of the report: what was checked, whether it is as it should be, why not, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

OK, PROBLEM, UNCHECKED = "ok", "problem", "unchecked"


@dataclass(frozen=True, slots=True)
class Finding:
    """`state` is ok, problem or unchecked; `advice` says what to do about the latter two."""

    name: str
    state: str
    detail: str
    advice: str = ""


def ok(name: str, detail: str) -> Finding:
    return Finding(name, OK, detail)


def problem(name: str, detail: str, advice: str) -> Finding:
    return Finding(name, PROBLEM, detail, advice)


def unchecked(name: str, detail: str, advice: str) -> Finding:
    return Finding(name, UNCHECKED, detail, advice)
