"""smolagents, unmodified: a CodeAgent's steps run in a Python context of a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.conftest import Run

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(900)]


def test_agents_with_a_scripted_model(run_framework: Run) -> None:
    script = Path(__file__).with_name("smolagents_script.py")
    page = Path(__file__).parents[2] / "docs" / "smolagents.md"
    assert run_framework("smolagents", str(script), str(page)).endswith("done\n")


def test_its_own_tests_of_executors(run_own_suite: Run) -> None:
    suite = Path(__file__).with_name("smolagents_suite.py")
    run_own_suite("smolagents", "smolagents' tests of executors", suite, tests=".")
