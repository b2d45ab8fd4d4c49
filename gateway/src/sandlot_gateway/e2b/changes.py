"""What changed in a directory between two looks at it, as E2B's events, without I/O."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """What a look keeps of an entry."""

    kind: str
    size: int
    mtime: float
    mode: str


Look = Mapping[str, Seen]  # by the path from the watched directory


def look_of(entries: Sequence[dict[str, Any]]) -> dict[str, Seen]:
    """Return a look from the sidecar's entries of a directory and below; the first is in the directory itself."""
    if not entries:
        return {}
    begin = posixpath.dirname(entries[0]["path"]).rstrip("/") + "/"
    return {
        each["path"].removeprefix(begin): Seen(each["type"], each["size"], each["mtime"], each["mode"])
        for each in entries
    }


def changes(before: Look, after: Look) -> list[dict[str, str]]:
    """Return the events between two looks; a renamed entry is removed and created."""
    found = [_event(name, "REMOVE") for name in before if name not in after]
    for name, now in after.items():
        then = before.get(name)
        if then is None or then.kind != now.kind:
            found.append(_event(name, "CREATE"))
            written = now.kind == "file" and now.size > 0
        else:
            written = now.kind == "file" and (then.size, then.mtime) != (now.size, now.mtime)
            if then.mode != now.mode:
                found.append(_event(name, "CHMOD"))
        if written:
            found.append(_event(name, "WRITE"))
    return found


def _event(name: str, kind: str) -> dict[str, str]:
    return {"name": name, "type": f"EVENT_TYPE_{kind}"}
