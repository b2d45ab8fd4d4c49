"""tinker-cookbook's client of SandboxFusion against the gateway's `run_code`, unmodified: one file of its wheel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.conftest import Run
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root]

SCRIPT = Path(__file__).with_name("scripts") / "fusion_tinker.py"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--fusion", "host", "--fusion-sandboxes", "4") as running:
        yield running


def test_its_client_runs_code(run_framework: Run) -> None:
    assert run_framework("tinker-cookbook", str(SCRIPT)) == "as expected\n"
