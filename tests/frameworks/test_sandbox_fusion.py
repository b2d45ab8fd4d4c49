"""Unmodified callers of SandboxFusion's API against the gateway: its SDK, verl's scorer and tinker-cookbook's client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.conftest import Run, framework_python
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root]

SCRIPTS = Path(__file__).with_name("scripts")
PAGE = Path(__file__).parents[2] / "docs" / "sandbox-fusion.md"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--fusion", "host", "--fusion-sandboxes", "4") as running:
        yield running


def file_of(package: str, path: str) -> str:
    """A file of a framework, by its path in the package index's wheel."""
    (packages,) = framework_python(package).parents[1].glob("lib/python3.*/site-packages")
    return str(packages / path)


def test_the_sdk_runs_code(run_framework: Run) -> None:
    assert run_framework("sandbox-fusion", str(SCRIPTS / "fusion_sdk.py")) == "as expected\n"


def test_verls_scorer_scores(run_framework: Run) -> None:
    scorer = file_of("verl", "verl/utils/reward_score/sandbox_fusion/__init__.py")
    assert run_framework("sandbox-fusion", str(SCRIPTS / "fusion_verl.py"), scorer) == "as expected\n"


def test_tinker_cookbooks_client_runs_code(run_framework: Run) -> None:
    client = file_of("tinker-cookbook", "tinker_cookbook/sandbox/sandboxfusion.py")
    assert run_framework("sandbox-fusion", str(SCRIPTS / "fusion_tinker.py"), client) == "as expected\n"


def test_the_example_of_the_page_runs(run_framework: Run) -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    assert run_framework("sandbox-fusion", "-c", example) == "Success 42\n\n"
