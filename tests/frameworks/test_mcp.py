"""The official client of the Model Context Protocol uses the tools by both transports, and by both kinds of revisions."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot import Client, Sandbox

from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("mcp_script.py")
PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--pool", "warm=2", "--mcp") as running:
        yield running


@pytest.mark.parametrize("oldest", [False, True], ids=["pinned", "oldest"])
def test_the_official_client_uses_all_tools(
    stack: Stack, run_framework: Callable[..., str], oldest: bool
) -> None:
    modes = ["auto"] if oldest else ["auto", "legacy"]
    command = (",".join(modes), sys.executable, "-m", "sandlot", "mcp")
    seen = json.loads(run_framework("mcp", str(SCRIPT), *command, oldest=oldest))
    versions = {name: session.pop("version") for name, session in seen.items()}
    revisions = {"auto": "2026-07-28", "legacy": "2025-11-25"}
    assert versions == {
        f"over_{transport} {mode}": revisions[mode] for transport in ("stdio", "http") for mode in modes
    }
    with Client(url=stack.url, api_key=stack.api_key) as client:
        left = {name: Sandbox.connect(session.pop("left"), client=client) for name, session in seen.items()}
        # The newest revision has no sessions over HTTP.
        assert [name for name, box in left.items() if not box.info.ended] == ["over_http auto"]
        left["over_http auto"].delete()
    for name, session in seen.items():
        assert session == {
            "tools": 19,
            "uncalled": [],
            "described": True,
            "failed": ["exited", 3, "no\n"],
            "read": ["got it\n", "exited", True],
            "file": ["one\ntwo €\n", 12, True],
            "names": ["b.txt"],
            "found": [[2, "two €"]],
            "exposed": True,
            "missing": [True, "file"],
            "mine": True,
            "cancelled": "killed",
            "ended": [7, "killed"],
            "state": [True, "RUNNING", None],
            "gone": [True, "sandbox_ended"],
        }, name


def test_the_configurations_of_the_page_lead_clients_to_the_tools(
    stack: Stack, run_framework: Callable[..., str], tmp_path: Path
) -> None:
    written = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    here = {"https://sandlot.example": stack.url, "YOUR_KEY": stack.api_key, "python:3.12": "host"}
    servers: list[dict[str, Any]] = []
    for text in written:
        for placeholder, value in here.items():
            text = text.replace(placeholder, value)
        servers += json.loads(text)["mcpServers"].values()
    assert [server.get("type", "stdio") for server in servers] == ["stdio", "http"]
    file = tmp_path / "servers.json"
    file.write_text(json.dumps(servers))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where `pip install` puts `sandlot`
    script = str(SCRIPT.with_name("mcp_configured_script.py"))
    seen = run_framework("mcp", script, str(file), environment={"PATH": path})
    assert json.loads(seen) == ["host 42\n", "host 42\n"]


def test_the_example_of_the_page(stack: Stack, run_framework: Callable[..., str], tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example)
    assert run_framework("mcp", str(script)) == "exited 42\n\n"
