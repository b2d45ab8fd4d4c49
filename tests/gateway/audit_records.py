"""Reads the audit log of a gateway as an operator's program would: line by line, and every line is a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.waiting import until

# Those of every record, in order; a call that deletes many has two more.
FIELDS = (
    *("type", "time", "request", "action", "kind", "id", "sandbox", "run"),
    *("tenant", "role", "key", "peer", "status", "error", "ms"),
)


def records(path: Path, *, growing: bool = False) -> list[dict[str, Any]]:
    """All records that have been written; fails if a line is none. `growing`: a write may be under way."""
    # `splitlines` would also split at U+2028, which some collectors do.
    text = path.read_text() if path.exists() else ""
    if growing:  # the kernel shows a part of a write of several pages
        text = text[: text.rfind("\n") + 1]
    assert text == "" or text.endswith("\n"), "the last line is not whole"
    found = [json.loads(line) for line in text.splitlines()]
    assert all(record["type"] == "audit" for record in found)
    assert [tuple(name for name in record if name not in ("deleted", "ids")) for record in found] == [
        FIELDS
    ] * len(found)
    return found


async def record_of(path: Path, request: str) -> dict[str, Any]:
    """The one record of the call with this request id, once it is written."""
    (found,) = await until(
        lambda: [record for record in records(path, growing=True) if record["request"] == request],
        what=request,
    )
    return found
