"""The unmodified E2B SDK builds templates at the gateway, and creates sandboxes from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frameworks.test_e2b import run_javascript, variables
from tests.prime.server import Server
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[2] / "docs" / "e2b-templates.md"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    options = ("--e2b", "--e2b-templates", "base=host,python:3.12-slim=host", "--local-images", "host")
    with private_stack(*options) as running:
        yield running


@pytest.mark.parametrize("name", ["e2b_template_script.py", "e2b_async_template_script.py"])
def test_templates_are_built_and_used(name: str, server: Server, run_framework: Callable[..., str]) -> None:
    environment = variables(server.url, server.api_key)
    assert run_framework("e2b", str(HERE / name), environment=environment) == "all of it\n"


def test_the_javascript_sdk_builds_templates(server: Server, tmp_path: Path) -> None:
    assert run_javascript((HERE / "e2b_template_script.mjs").read_text(), server, tmp_path) == "all of it\n"


def test_the_example_of_the_page_works(server: Server, run_framework: Callable[..., str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    environment = variables(server.url, server.api_key)
    assert run_framework("e2b", "-c", example, environment=environment).splitlines() == ["42", ""]
