"""verl's own scorer, one file of its wheel: right, wrong, crashing, looping and greedy completions get their scores."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import requests

sys.path.append(str(Path(__file__).parents[1]))
from lost import kill_sidecar, with_marker

FILE = os.path.join(sysconfig.get_path("purelib"), "verl/utils/reward_score/sandbox_fusion/__init__.py")
spec = importlib.util.spec_from_file_location(
    "scorer", FILE, submodule_search_locations=[os.path.dirname(FILE)]
)
assert spec is not None
assert spec.loader is not None
scorer = importlib.util.module_from_spec(spec)
sys.modules["scorer"] = scorer
spec.loader.exec_module(scorer)

URL = f"{os.environ['SANDLOT_URL']}/fusion/{os.environ['SANDLOT_API_KEY']}/run_code"
SANDBOXES = 4  # of the gateway
CASES = {"inputs": ["1", "2", "3"], "outputs": ["2", "4", "6"]}


def score(code: str, *, timeout: int = 10, memory: int = 1024) -> tuple[float, list]:
    completion = f"```python\n{code}\n```"
    return scorer.compute_score(
        URL, threading.Semaphore(64), memory, completion, dict(CASES), continuous=True, timeout=timeout
    )


right, details = score("print(2 * int(input()))")
assert right == 1.0, details
assert score("print(2 if input() == '1' else 0)")[0] == 1 / 3
assert [each["status"] for each in score("raise SystemExit(3)")[1]] == ["runtime_error"] * 3
assert [each["status"] for each in score("while True: pass", timeout=1)[1]] == ["timeout"] * 3
zero, details = score("print(len(bytearray(4 << 30)))", memory=256)
assert zero == 0.0
assert [each["status"] for each in details] == ["runtime_error"] * 3, details


class Repeated(logging.Handler):
    """Keeps what verl says when it repeats a request, and ends the code that keeps all sandboxes busy."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        for pid in with_marker("600.75"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


with ThreadPoolExecutor(SANDBOXES) as others:
    body = {"code": "sleep 600.75", "language": "bash", "run_timeout": 600}
    busy = [others.submit(requests.post, URL, json=body) for _ in range(SANDBOXES)]
    while len(with_marker("600.75")) < SANDBOXES:
        time.sleep(0.05)
    repeated = Repeated()
    logging.getLogger("scorer").addHandler(repeated)
    # verl gives up for good 10 s after the two limits; the 504 comes before.
    assert score("print(2 * int(input()))", timeout=5)[0] == 1.0, repeated.told
    assert "Gateway Timeout (504) on attempt 1/3" in repeated.told[0], repeated.told
    assert [each.result().status_code for each in busy] == [200] * SANDBOXES

with ThreadPoolExecutor(1) as scorers:
    lasting = "import subprocess\nsubprocess.run(['sleep', '1.25803'])\nprint(2 * int(input()))"
    future = scorers.submit(score, lasting)
    kill_sidecar("1.25803")
    assert future.result()[0] == 1.0, future.result()
print("as expected")
