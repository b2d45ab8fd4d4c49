"""A watch of files through gateway and command line: it outlives the gateway with the gap told, and ends as its sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from sandlot import Client, FileEvent, FileMissing, Sandbox, SandboxLost

from tests.stack import Stack

pytestmark = pytest.mark.root


def test_a_watch_outlives_its_gateway_and_ends_as_its_sandbox(stack: Stack, client: Client) -> None:
    box = Sandbox.create(client=client)
    with pytest.raises(FileMissing, match=r"^/none: no such file"):
        next(box.files.watch("/none"))
    box.exec("mkdir -p /w/a", check=True)
    environment = {**os.environ, "SANDLOT_URL": stack.url, "SANDLOT_API_KEY": stack.api_key}
    command = [sys.executable, "-m", "sandlot", "watch", "--json", f"{box.id}:/w"]
    with ExitStack() as ends:
        events = ends.enter_context(box.files.watch("/w", recursive=True))
        printing = subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        ends.enter_context(printing)
        ends.callback(printing.kill)
        assert printing.stdout is not None
        assert printing.stderr is not None
        assert printing.stderr.readline() == f"watching {box.id}:/w\n"
        box.exec("mv /w/a /w/b", check=True)
        assert next(events) == FileEvent("renamed", "/w/b", is_dir=True, old_path="/w/a")
        line = {"kind": "renamed", "path": "/w/b", "is_dir": True, "old_path": "/w/a"}
        assert json.loads(printing.stdout.readline()) == line
        stack.kill()
        stack.start()
        assert next(events) == FileEvent("overflow", "/w")
        assert json.loads(printing.stdout.readline())["kind"] == "overflow"
        box.files.write("/w/b/f", "x")
        assert next(events) == FileEvent("created", "/w/b/f")
        box.delete()
        with pytest.raises(SandboxLost) as ended:
            next(events)
        assert (ended.value.verdict, list(events)) == ("deleted", [])
        assert printing.wait() == 125
        assert "(deleted)" in printing.stderr.read()
