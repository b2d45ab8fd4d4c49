"""The programs of docs/checkpoints.md that copy a directory of checkpoints, and bring a copy back."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "checkpoints.md"
DIRECTORY = "/var/lib/sandlot-checkpoints"


def page_program(name: str) -> str:
    """In Python; the page has it under this name."""
    (found,) = re.findall(rf"^{name}='(.+?)'$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert DIRECTORY in found
    return found
