"""What Python complains of on the standard error of a program of ours: its warnings, and exceptions that nothing caught."""

from __future__ import annotations

import re

# Part of the environment of a program that a test starts: without it, it keeps a ResourceWarning to itself.
WARNINGS_SHOWN = {"PYTHONWARNINGS": "default"}

_COMPLAINT = re.compile(
    r"^(?:\S+:\d+: \w*Warning: .*"
    r"|Exception ignored in: .*"
    r"|Exception in thread .*"
    r"|.*(?:Task exception was never retrieved|Future exception was never retrieved|Task was destroyed but it is pending).*)$",
    re.MULTILINE,
)


def complaints(stderr: str) -> list[str]:
    return _COMPLAINT.findall(stderr)


def assert_no_complaints(stderr: str) -> None:
    found = complaints(stderr)
    assert not found, "\n".join([*found, "in:", stderr[-5000:]])
