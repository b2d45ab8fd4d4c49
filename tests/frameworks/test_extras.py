"""The extras of the SDK's pyproject name packages that tests run with, in versions that they allow."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.frameworks.conftest import framework_python
from tests.frameworks.listed import Framework, frameworks

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]
EXTRAS = {
    name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()
}
OWN = {
    "cli",
    "mcp",
    "local",
    "grade",
    "otel",
}  # of no framework that is listed: here their packages are installed
VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


def framework_of(extra: str) -> Framework:
    """The one that the extra's first requirement installs."""
    return frameworks()[EXTRAS[extra][0].name]


def versions(python: Path | str, names: list[str]) -> dict[str, str]:
    done = subprocess.run([str(python), "-c", VERSIONS, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("extra", sorted(OWN))
def test_an_extra_without_a_framework_is_installed_here(extra: str) -> None:
    allowed(EXTRAS[extra], versions(sys.executable, [each.name for each in EXTRAS[extra]]))


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - OWN))
def test_an_extra_of_a_framework_allows_the_listed_release(extra: str) -> None:
    framework = framework_of(extra)
    assert EXTRAS[extra][0].specifier.contains(framework.version)
    page = (ROOT / framework.page).read_text()
    assert f"sandlot[{extra}]" in page, f"{framework.page} does not say how to install it"


@pytest.mark.clients
@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - OWN))
def test_the_environment_of_a_framework_s_tests_has_what_its_extra_installs(extra: str) -> None:
    python = framework_python(framework_of(extra).package)
    allowed(EXTRAS[extra], versions(python, [each.name for each in EXTRAS[extra]]))


def allowed(requirements: list[Requirement], found: dict[str, str]) -> None:
    for each in requirements:
        assert each.specifier.contains(found[each.name], prereleases=True), (str(each), found[each.name])
