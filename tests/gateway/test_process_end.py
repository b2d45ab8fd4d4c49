"""The gateway's process ends soon after its stop, although a thread of an executor waits for something that never comes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STUCK = """
import asyncio, sys, threading
from sandlot_gateway import __main__, serve

async def stuck(settings):
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    return 7

serve.serve = stuck
sys.exit(__main__.main())
"""


def test_a_thread_that_is_stuck_does_not_hold_up_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STUCK, "--state-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
