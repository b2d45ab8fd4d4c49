"""The synchronous flavour is what the generator makes of the asynchronous one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_drift_and_no_unused_rule() -> None:
    run = subprocess.run(
        [sys.executable, "tools/async_to_sync.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_nothing_asynchronous_is_left() -> None:
    for path in (ROOT / "sdk/src/sandlot/_sync").glob("*.py"):
        text = path.read_text()
        for word in ("async def", "await ", "asyncio", "Awaitable", "__anext__"):
            assert word not in text.partition("do not change it.")[2], f"{path.name} has {word!r}"
