"""Makes one Python program out of a candidate and its tests, and tells whether a run of it was a pass."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

_DEFINES_CHECK = re.compile(r"^def\s+check\s*\(", re.MULTILINE)
# Only at the start of a line: an indented call may never be reached, and then everything would pass.
_CALLS_CHECK = re.compile(r"^(?:assert\b.*\b)?check\s*\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
    """The text to run with `python3`, and the line it prints last when every test has passed.

    An exit code of 0 alone is no proof: a candidate can leave with `os._exit(0)` before the first test.
    """

    source: str
    marker: str

    def passed(self, *, verdict: str, exit_code: int | None, stdout: str, truncated: bool) -> bool:
        return (
            verdict == "exited" and exit_code == 0 and not truncated and stdout.endswith(self.marker + "\n")
        )


def needs_entry_point(test: str) -> bool:
    """Whether `test` defines `check` and does not call it itself: without an entry point it would test nothing."""
    return _DEFINES_CHECK.search(test) is not None and _CALLS_CHECK.search(test) is None


def build(*, code: str, test: str, entry_point: str | None) -> Program:
    """`code`, then `test`, then the call of its `check` (when it defines one), then the marker."""
    marker = f"sandlot-passed-{secrets.token_hex(16)}"
    parts = [code, test]
    if entry_point is not None and _DEFINES_CHECK.search(test):
        parts.append(f"check({entry_point})")
    # `print` may be replaced or stdout closed by the candidate; then the marker is missing, which is a failure.
    parts.append(f"print({marker!r}, flush=True)")
    return Program(source="\n".join(parts) + "\n", marker=marker)
