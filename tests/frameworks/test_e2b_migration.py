"""What E2B's users wrote before their migration, as its page shows it, runs here with the unmodified SDK.

The one test of a framework in `make test`: its environment is made in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.conftest import Run
from tests.prime.server import Server
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[2] / "docs" / "migrate-e2b.md"
# A loaded machine needs more than the page's 10 s for a login shell and a Python.
SCORES = """
print(score("def double(n): return 2 * n", limit=120))
print(score("def double(n): return n", limit=120))
print(score("import time; time.sleep(300)", limit=0.5))
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--pool", "warm=2", "--e2b", "--e2b-templates", "base=host") as running:
        yield running


def test_the_rollout_before_the_migration_runs_unchanged(server: Server, run_framework: Run) -> None:
    (before,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    url = f"{server.url}/e2b"
    environment = {"E2B_API_KEY": server.api_key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    assert run_framework("e2b", "-c", before + SCORES, environment=environment) == "1.0\n0.0\n0.0\n"
