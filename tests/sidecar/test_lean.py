"""What a sidecar may stand on: asyncio, httptools, the contract and the standard library, and not all of that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.sidecar.support import Sidecar

ALL = """
import importlib, json, pkgutil, sys
import sandlot_sidecar
for module in pkgutil.walk_packages(sandlot_sidecar.__path__, "sandlot_sidecar."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
# Their memory would be paid for by every sandbox of a node.
HEAVY = ("_ssl", "_hashlib", "_decimal", "unicodedata", "_ctypes_test", "pyexpat", "uvloop", "_cffi")


def test_nothing_but_httptools_and_the_standard_library() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", ALL], capture_output=True, check=True)
    modules = set(json.loads(done.stdout))
    assert {"sandlot_sidecar", "httptools", "asyncio"} <= modules
    # What a site's own .pth files bring in is in every interpreter of this environment.
    bare = "import json, sys; print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    environment = set(json.loads(subprocess.check_output([sys.executable, "-I", "-c", bare])))
    foreign = (
        modules
        - environment
        - set(sys.stdlib_module_names)
        - {"sandlot_sidecar", "sandlot_contract", "httptools"}
    )
    # Not files, but names that httptools' compiled code registers.
    assert {name for name in foreign if not name.startswith(("_cython_", "cython_runtime"))} == set()


async def test_a_running_one_has_no_heavy_library_in_memory(box: Sidecar) -> None:
    await box.exec("true")
    mapped = maps(box.pid)
    assert "httptools" in mapped
    assert [name for name in HEAVY if f"/{name}." in mapped] == []


def maps(pid: int) -> str:
    """What a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text()
