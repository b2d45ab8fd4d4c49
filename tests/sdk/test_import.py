"""Importing the package is cheap: a trainer's thousand workers pay for it each."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "asyncio", "typer", "rich", "http", "ssl", "email", "pydantic", "httpx", "sandlot.cli"}
LIST = "import sys; before = set(sys.modules); {code}; new = sorted(set(sys.modules) - before); import json; print(json.dumps(new))"


def modules(code: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-I", "-c", LIST.format(code=code)], capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(run.stdout)
    return found


def test_the_bare_import_loads_next_to_nothing() -> None:
    found = modules("import sandlot")
    assert len(found) < 50, found
    assert not HEAVY & set(found)


@pytest.mark.parametrize(
    ("code", "allowed"),
    [("from sandlot import Sandbox", set()), ("from sandlot import AsyncSandbox", {"asyncio"})],
)
def test_the_clients_load_no_third_party_package(code: str, allowed: set[str]) -> None:
    found = set(modules(code))
    assert not (HEAVY - allowed - {"ssl"}) & found
    foreign = {name for name in found if name.split(".")[0] not in sys.stdlib_module_names} - {"sandlot"}
    assert {name for name in foreign if not name.startswith(("sandlot.", "_"))} == set()


ASKED = """
import json, sys
asked = []
class Asked:
    def find_spec(self, name, path=None, target=None):
        asked.append(name)
sys.meta_path.insert(0, Asked())
{code}
print(json.dumps(asked))
"""


@pytest.mark.parametrize(
    "code",
    ["import sandlot", "import sandlot\nfor name in sandlot.__all__: getattr(sandlot, name)"],
    ids=["bare", "all names"],
)
def test_no_framework_is_looked_for(code: str) -> None:
    """A framework that is not installed here would show in no list of what was loaded."""
    run = subprocess.run(
        [sys.executable, "-I", "-c", ASKED.format(code=code)], capture_output=True, text=True, check=True
    )
    asked: list[str] = json.loads(run.stdout)
    assert "sandlot" in asked
    assert [name for name in asked if name.startswith("sandlot.integrations")] == []
    ours = {"sandlot", "org", *sys.stdlib_module_names}  # org: of Jython, which pickle looks for
    assert [name for name in asked if name.partition(".")[0] not in ours] == []


def test_every_public_name_can_be_imported() -> None:
    import sandlot

    for name in sandlot.__all__:
        assert getattr(sandlot, name) is not None
    with pytest.raises(AttributeError):
        _ = sandlot.Nothing
