"""The unmodified E2B SDK builds templates at the gateway, and creates sandboxes from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frameworks.test_e2b import variables
from tests.prime.server import Server
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(400)]

SCRIPT = str(Path(__file__).parent / "e2b_template_script.py")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    options = ("--e2b", "--e2b-templates", "base=host", "--local-images", "host")
    with private_stack(*options) as running:
        yield running


def test_templates_are_built_and_used(server: Server, run_framework: Callable[..., str]) -> None:
    environment = variables(server.url, server.api_key)
    assert run_framework("e2b", SCRIPT, environment=environment) == "all of it\n"
