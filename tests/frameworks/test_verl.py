"""verl's own scorer against the gateway's `run_code`, unmodified: one file of its wheel, since all of it is gigabytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.conftest import Run
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root]

SCRIPT = Path(__file__).with_name("scripts") / "fusion_verl.py"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--fusion", "host", "--fusion-sandboxes", "4") as running:
        yield running


def test_verls_scorer_scores(run_framework: Run) -> None:
    assert run_framework("verl", str(SCRIPT)) == "as expected\n"
