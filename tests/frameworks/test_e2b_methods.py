"""docs/e2b-methods.md: all methods of E2B's SDKs are in its table, and scripts with the unmodified SDKs call all that work."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.conftest import framework_python
from tests.frameworks.e2b_installation import DOMAIN, Installation, installation, need_programs
from tests.frameworks.e2b_table import PAGE, counted, rows
from tests.frameworks.e2b_types import javascript_surface
from tests.frameworks.test_e2b import javascript_sdks
from tests.ports import free_port
from tests.prime.trust import trusting

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
# The bases of the scripts' templates: an operator's aliases, so that no image has to come from a registry.
BASES = (
    "debian:stable",
    "ubuntu:24.04",
    "fedora:44",
    "alpine:3.24",
    "archlinux:latest",
    "python:3",
    "node:lts",
    "oven/bun:latest",
    "e2bdev/base",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    if os.geteuid() != 0:
        pytest.skip("needs root: a network namespace")
    need_programs("git", "ss", "curl", "pgrep", "python3")
    aliases = ",".join(f"{name}=host" for name in ("base", "code-interpreter-v1", *BASES))
    options = ("--pool", "warm=2", "--e2b-templates", aliases, "--local-images", "host")
    with installation(tmp_path_factory.mktemp("certificate"), *options) as made:
        yield made


def variables(installed: Installation) -> dict[str, str]:
    """Those of E2B's users, and what the script has to know of where it runs."""
    return {
        "E2B_API_KEY": "e2b_" + installed.api_key.encode().hex(),
        "E2B_DOMAIN": DOMAIN,
        "SANDLOT_SCRIPT_IMAGE": installed.image,
        "SANDLOT_SCRIPT_PORT": str(free_port()),
        "SANDLOT_SCRIPT_PEER": installed.peer,
    }


@pytest.mark.parametrize("half", ["sync", "async"])
def test_every_method_of_the_python_sdk_that_works_is_called(
    half: str, installed: Installation, tmp_path: Path
) -> None:
    python = framework_python("e2b-code-interpreter")
    trust = trusting(python, authority=installed.certificate.authority, directory=tmp_path)
    words = (str(python), "-B", str(HERE / "e2b_methods_script.py"), half)
    shown = installed.run(*words, environment={**variables(installed), **trust}, cwd=tmp_path)
    works = rows("Python", "works", "differs") & python_surface(half)
    assert works - set(json.loads(shown.splitlines()[-1])) == set()


def test_every_method_of_the_javascript_sdk_that_works_is_called(
    installed: Installation, tmp_path: Path
) -> None:
    (tmp_path / "node_modules").symlink_to(javascript_sdks())
    for name in ("e2b_methods_script.mjs", "e2b_templates_part.mjs", "e2b_calls.mjs"):
        (tmp_path / name).write_bytes((HERE / name).read_bytes())
    trust = {"NODE_EXTRA_CA_CERTS": str(installed.certificate.authority)}
    shown = installed.run(
        "node", "e2b_methods_script.mjs", environment={**variables(installed), **trust}, cwd=tmp_path
    )
    called = set(json.loads(shown.splitlines()[-1]))
    assert rows("JavaScript", "works", "differs") - called == set()


def test_the_page_has_every_method_of_the_python_sdk() -> None:
    assert rows("Python") == python_surface("sync") | python_surface("async")


def python_surface(half: str) -> set[str]:
    words = (str(framework_python("e2b-code-interpreter")), "-B", str(HERE / "e2b_calls.py"), half)
    return set(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))


def test_the_page_has_every_method_of_the_javascript_sdk() -> None:
    assert rows("JavaScript") == javascript_surface(javascript_sdks())


@pytest.mark.parametrize("language", ["Python", "JavaScript"])
def test_the_page_has_the_share_that_works(language: str) -> None:
    (line,) = re.findall(rf"^\| {language} \| [0-9].*", PAGE.read_text(), re.MULTILINE)
    found = counted(language)
    assert line == found.line
    assert found.share >= 95
