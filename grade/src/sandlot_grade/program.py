"""Builds a Python program from a candidate and its tests, and determines whether a run of it passed."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sandlot_grade.checks import check_of


@dataclass(frozen=True, slots=True)
class Program:
    """A program for `python3`, and the line that it prints last if every test has passed.

    An exit code of 0 alone is no proof: a candidate can exit with `os._exit(0)` before the first test.
    """

    source: str
    marker: str

    def passed(self, *, verdict: str, exit_code: int | None, stdout: str, truncated: bool) -> bool:
        return (
            verdict == "exited" and exit_code == 0 and not truncated and stdout.endswith(self.marker + "\n")
        )


def build(*, code: str, test: str, entry_point: str | None) -> Program:
    """Return `code`, then `test`, then the call of its `check` (if it defines one), then the marker."""
    marker = f"sandlot-passed-{secrets.token_hex(16)}"
    parts = [code, test]
    kind = check_of(test).kind
    if entry_point is not None and kind == "plain":
        parts.append(f"check({entry_point})")
    elif entry_point is not None and kind == "async":
        # One branch of an `if` may define a plain function.
        parts.append(f"_sandlot_check = check({entry_point})")
        parts.append("if hasattr(_sandlot_check, '__await__'):")
        parts.append("    import asyncio as _sandlot_asyncio")
        parts.append("    _sandlot_asyncio.run(_sandlot_check)")
    # The candidate may replace `print` or close stdout; the marker is then missing, which is a failure.
    parts.append(f"print({marker!r}, flush=True)")
    return Program(source="\n".join(parts) + "\n", marker=marker)
