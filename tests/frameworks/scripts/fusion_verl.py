"""verl's own scorer, one file of its wheel: right, wrong, crashing, looping and greedy completions get their scores."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import threading

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
print("as expected")
