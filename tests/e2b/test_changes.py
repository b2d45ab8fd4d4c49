"""What a watched directory's two looks tell of the time between them."""

from __future__ import annotations

import pytest
from sandlot_gateway.e2b.changes import Seen, changes, look_of

FILE = Seen("file", 3, 1.0, "0644")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, FILE, ["CREATE", "WRITE"]),
        (None, FILE._replace(size=0), ["CREATE"]),
        (None, Seen("dir", 4096, 1.0, "0755"), ["CREATE"]),
        (FILE, None, ["REMOVE"]),
        (FILE, FILE, []),
        (FILE, FILE._replace(mtime=2.0), ["WRITE"]),
        (FILE, FILE._replace(size=4), ["WRITE"]),
        (FILE, FILE._replace(mode="0600"), ["CHMOD"]),
        (FILE, Seen("dir", 4096, 2.0, "0644"), ["CREATE"]),
        (Seen("dir", 1, 1.0, "0755"), Seen("dir", 2, 2.0, "0755"), []),
    ],
)
def test_each_change_is_told(before: Seen | None, after: Seen | None, told: list[str]) -> None:
    looks = [{} if look is None else {"a": look} for look in (before, after)]
    assert changes(*looks) == [{"name": "a", "type": f"EVENT_TYPE_{each}"} for each in told]


def test_names_are_from_the_watched_directory() -> None:
    entries = [
        {"path": path, "type": "file", "size": 3, "mtime": 1.0, "mode": "0644"} for path in ("/w/b", "/w/d/a")
    ]
    assert look_of(entries) == {"b": FILE, "d/a": FILE}
    assert look_of([{**entries[0], "path": "/b"}]) == {"b": FILE}
    assert look_of([]) == {}
