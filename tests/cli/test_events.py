"""events: a line for each event, until the stream cannot go on."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import command_line
from tests.sdk.service.events import event, scripted


def test_events_are_lines_of_text_or_json(tmp_path: Path) -> None:
    ended = event("a", "ended", cursor="c-1-1", verdict="oom", message="too\x1b[31m much", place=None)
    waits = event("b", "queued", cursor="c-2-2", place=7)
    expired = 410, json.dumps({"detail": "cursor: too old", "resume": "c-5-5"}).encode()
    with scripted((200, ended + waits), expired, (200, ended), expired) as server:
        cli = command_line(server.url, "k", tmp_path)
        shown = cli("events", "--run", "r", "--label", "l", "--label", "m", "--cursor", "c-0-0")
        assert shown.stdout.splitlines() == [
            "2026-03-01T09:30:00.000000Z ended   a oom: too\\x1b[31m much",
            "2026-03-01T09:30:00.000000Z queued  b place 7",
        ]
        assert (shown.returncode, shown.stderr) == (1, "sandlot: cursor: too old\n")
        assert server.queries[0] == {"run": ["r"], "labels": ["l", "m"], "cursor": ["c-0-0"]}
        printed = cli("events", "--json", "--type", "sandbox.ended", "--sandbox", "a").stdout
        assert json.loads(printed)["verdict"] == "oom"
        assert server.queries[2] == {"types": ["sandbox.ended"], "sandbox_ids": ["a"]}
