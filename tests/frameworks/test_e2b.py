"""The unmodified E2B SDK against a gateway that serves its wire, by environment variables alone; and docs/e2b.md's table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.prime.server import Server
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(400)]

Run = Callable[..., str]
HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "e2b.md"
EARLIER = "2.35.0"  # checks the form of keys
PUBLIC = """
import json
from e2b import Sandbox
from e2b.sandbox_sync.commands.command import Commands
from e2b.sandbox_sync.commands.command_handle import CommandHandle
from e2b.sandbox_sync.commands.pty import Pty
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from e2b.sandbox_sync.git import Git
classes = {"Sandbox": Sandbox, "commands": Commands, "handle": CommandHandle, "files": Filesystem, "pty": Pty, "git": Git}
print(json.dumps([f"{name}.{each}" for name, kind in classes.items() for each in dir(kind)
                  if not each.startswith("_") and callable(getattr(kind, each))]))
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--pool", "warm=2", "--e2b", "--e2b-templates", "base=host") as running:
        yield running


def variables(server: Server, *, api_key: str | None = None) -> dict[str, str]:
    url = f"{server.url}/e2b"
    return {"E2B_API_KEY": api_key or server.api_key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}


@pytest.mark.parametrize("script", ["e2b_script.py", "e2b_async_script.py"])
def test_every_method_that_is_built_works_with_the_newest_tested_sdk(
    script: str, server: Server, run_framework: Run
) -> None:
    told = run_framework("e2b", str(HERE / script), environment=variables(server))
    assert told == "all of it\n"


def test_an_earlier_sdk_works_with_the_key_in_the_form_that_it_wants(
    server: Server, run_framework: Run
) -> None:
    key = "e2b_" + server.api_key.encode().hex()
    script = str(HERE / "e2b_script.py")
    environment = variables(server, api_key=key)
    assert run_framework("e2b", script, "old", version=EARLIER, environment=environment) == "all of it\n"


def test_the_page_says_of_every_public_method_whether_it_works(run_framework: Run) -> None:
    methods = set(json.loads(run_framework("e2b", "-c", PUBLIC)))
    rows = re.findall(r"^\| (.+?) \| (works|differs|no)\b", PAGE.read_text(), re.MULTILINE)
    listed = {name for cell, _ in rows for name in re.findall(r"`([A-Za-z]+\.\w+)`", cell)}
    assert listed == methods
