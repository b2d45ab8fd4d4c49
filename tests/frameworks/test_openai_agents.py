"""The OpenAI Agents SDK, unmodified: its own runner, tools, snapshots and resume, over its whole sandbox interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.conftest import Run
from tests.frameworks.test_agent_frameworks import assert_nothing_left
from tests.prime.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(900)]


def test_agents_with_a_scripted_model(server: Server, run_framework: Run) -> None:
    script = Path(__file__).with_name("openai_agents_script.py")
    page = Path(__file__).parents[2] / "docs" / "openai-agents.md"
    assert run_framework("openai-agents", str(script), str(page)).endswith("done\n")
    assert_nothing_left(server)
