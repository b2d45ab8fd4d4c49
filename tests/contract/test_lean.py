"""The contract needs the standard library alone, and of what sidecars import of it nothing that is heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import sandlot_contract

SOURCE = Path(sandlot_contract.__file__).parents[1]
ALL = """
import importlib, json, pkgutil, sys
sys.path.append(sys.argv[1])
import sandlot_contract
for module in pkgutil.iter_modules(sandlot_contract.__path__):
    importlib.import_module(f"sandlot_contract.{module.name}")
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
# Their memory would be paid for by every sandbox of a node.
HEAVY = {"base64", "dataclasses", "hashlib", "hmac", "inspect", "ipaddress", "re", "secrets", "typing"}
# Without json: the sidecar imports it in a way of its own.
SIDECAR = """
import sys
sys.path[:0] = sys.argv[1:]
import sandlot_sidecar.__main__ as main
assert main.lean.import_asyncio()
import sandlot_sidecar.config, sandlot_sidecar.executor.main, sandlot_sidecar.server.main
print(*sys.modules)
"""


def test_nothing_but_the_standard_library() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", ALL, SOURCE], capture_output=True, check=True)
    assert set(json.loads(done.stdout)) - set(sys.stdlib_module_names) <= {"sandlot_contract", "__main__"}


def test_a_sidecar_loads_no_heavy_module_with_it() -> None:
    command = [sys.executable, "-I", "-S", "-c", SIDECAR, *sys.path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "sandlot_contract.verdicts" in modules
    assert modules & HEAVY == set()
