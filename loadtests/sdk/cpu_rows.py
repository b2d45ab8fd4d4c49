"""The SDK's own cost: CPU time per call with 2,000 execs in flight from one process, against a stub server."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request

from sandlot_grade.report.stats import median

from loadtests.reading import Reading

IN_FLIGHT = 2000


def sdk_cpu(*, rounds: int = 3, calls: int = 20_000) -> Reading:
    """Measure the CPU milliseconds per call, the median of fresh processes."""
    server = subprocess.Popen(
        [sys.executable, "-m", "loadtests.sdk.stub_api"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        runs = [_run(url, calls=calls) for _ in range(rounds)]
        with urllib.request.urlopen(f"{url}/most-held", timeout=10) as response:
            most = json.load(response)["most"]
    finally:
        server.terminate()
        server.communicate(timeout=20)
    return Reading(
        value=median([run["cpu_ms"] for run in runs]),
        parts={
            "runs": ", ".join(f"{run['cpu_ms']:.3f} ms" for run in runs),
            "calls/s": f"{median([run['calls_per_s'] for run in runs]):.0f}",
            "in flight at the server, most": str(most),
        },
    )


def _run(url: str, *, calls: int) -> dict[str, float]:
    command = [sys.executable, "-m", "loadtests.sdk.exec_load", "--url", url]
    command += ["--in-flight", str(IN_FLIGHT), "--calls", str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode != 0:
        raise RuntimeError(f"the SDK's load failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout)
