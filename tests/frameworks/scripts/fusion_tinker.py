"""tinker-cookbook's client of SandboxFusion, one file of its wheel: what passes, fails, times out, and loses its sandbox."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from lost import kill_sidecar

URL = f"{os.environ['SANDLOT_URL']}/fusion/{os.environ['SANDLOT_API_KEY']}/run_code"
os.environ["SANDBOX_URL"] = f"{URL}?patience=600"
FILE = os.path.join(sysconfig.get_path("purelib"), "tinker_cookbook/sandbox/sandboxfusion.py")
spec = importlib.util.spec_from_file_location("client", FILE)
assert spec is not None
assert spec.loader is not None
client = importlib.util.module_from_spec(spec)
spec.loader.exec_module(client)


async def main() -> None:
    sandbox = client.SandboxFusionClient()
    try:
        runs = await asyncio.gather(
            sandbox.run("import case; print(case.ANSWER)", {"case.py": "ANSWER = 42"}, 10),
            sandbox.run("raise ValueError", {}, 10),
            sandbox.run("while True: pass", {}, 1),
        )
        lasting = "import subprocess\nsubprocess.run(['sleep', '1.25805'])\nprint(42)"
        lost = asyncio.create_task(sandbox.run(lasting, {}, 10))
        await asyncio.to_thread(kill_sidecar, "1.25805")
        runs.append(await lost)
    finally:
        await sandbox.close()
    assert [passed for passed, _ in runs] == [True, False, False, True], runs
    assert runs[0][1]["run_result"]["stdout"] == "42\n"
    assert "ValueError" in runs[1][1]["run_result"]["stderr"]
    assert runs[2][1]["run_result"]["status"] == "TimeLimitExceeded"


asyncio.run(main())
print("as expected")
