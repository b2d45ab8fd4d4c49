"""Clients of SandboxFusion against the gateway, unmodified: its own SDK, verl's scorer, SkyRL's tool and scorer,
tinker-cookbook's client; and the examples of the page. Of the three trainers only these files of the wheels are loaded,
since all of them is gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.conftest import Run
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root]

SCRIPTS = Path(__file__).with_name("scripts")
PAGE = Path(__file__).parents[2] / "docs" / "sandbox-fusion.md"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--fusion", "host", "--fusion-sandboxes", "4") as running:
        yield running


def test_the_sdk_runs_code(run_framework: Run) -> None:
    assert run_framework("sandbox-fusion", str(SCRIPTS / "fusion_sdk.py")) == "as expected\n"


def test_the_examples_of_the_page_run(run_framework: Run) -> None:
    examples = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    told = run_framework("sandbox-fusion", "-c", examples)
    assert told == "Success 42\n\nSuccess ZeroDivisionError [{'text/plain': '21'}]\n"


def test_verls_scorer_scores(run_framework: Run) -> None:
    assert run_framework("verl", str(SCRIPTS / "fusion_verl.py")) == "as expected\n"


def test_skyrls_tool_and_scorer_run_code(run_framework: Run) -> None:
    assert run_framework("skyrl", str(SCRIPTS / "fusion_skyrl.py")) == "as expected\n"


def test_tinker_cookbooks_client_runs_code(run_framework: Run) -> None:
    assert run_framework("tinker-cookbook", str(SCRIPTS / "fusion_tinker.py")) == "as expected\n"
