"""SkyRL's two callers, files of its wheel: the tool `code_interpreter` of its agents, and the scorer `coder1`.

What is loaded in their place is only what they do not use here: their packages' own start, which imports PyTorch, and
two types of LiteLLM, which describe the tool to a model.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from lost import kill_sidecar

AT = os.environ["SANDLOT_URL"].removeprefix("http://")
KEY = os.environ["SANDLOT_API_KEY"]
os.environ["SANDBOX_FUSION_URL"] = f"http://{AT}/fusion/{KEY}"
# The scorer makes `http://SERVER:8080/run_code` of it, and nothing behind a # is sent.
os.environ["SANDBOX_FUSION_SERVERS"] = ",".join([f"{AT}/fusion/{KEY}/run_code#"] * 3)
os.environ["CODER1_EXEC"] = "sandboxfusion"

ROOT = os.path.join(sysconfig.get_path("purelib"), "skyrl-agent")
for name in ("skyrl_agent", "skyrl_agent.tools", "skyrl_agent.tasks", "skyrl_agent.tasks.verifiers"):
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(ROOT, *name.split("."))]
    sys.modules[name] = package
litellm = types.ModuleType("litellm")
litellm.ChatCompletionToolParam = litellm.ChatCompletionToolParamFunctionChunk = dict
sys.modules["litellm"] = litellm

from skyrl_agent.tasks.verifiers import coder1  # noqa: E402
from skyrl_agent.tools.sandbox_fusion import CodeInterpreter  # noqa: E402

tool = CodeInterpreter()
assert tool.call(json.dumps({"code": "```python\nx = 20\n2 * x + 2\n```"})) == "42\n"
assert "ZeroDivisionError" in tool.call({"code": "1 / 0"})
assert tool.call({"code": "print 6 * 7", "language": "perl"}) == "42"

CASES = json.dumps({"inputs": ["1", "2", "3"], "outputs": ["2", "4", "6"]})


def score(code: str, truth: str = CASES) -> float:
    return coder1.compute_score(f"```python\n{code}\n```", truth, {})["score"]


assert score("print(2 * int(input()))") == 1.0
assert score("print(2)") == 0.0
assert score("raise SystemExit(3)") == 0.0
assert score("def f(): return 42", json.dumps({"functional": "assert f() == 42"})) == 1.0
assert score("def f(): return 41", json.dumps({"functional": "assert f() == 42"})) == 0.0

with ThreadPoolExecutor(1) as callers:
    lasting = "import subprocess\nsubprocess.run(['sleep', '{0}'])\nprint(2 * int(input()))"
    scored = callers.submit(score, lasting.format("1.25806"))
    kill_sidecar("1.25806")
    assert scored.result() == 1.0
    told = callers.submit(
        tool.call, {"code": "import time, subprocess\nsubprocess.run(['sleep', '1.25807'])\n42"}
    )
    kill_sidecar("1.25807")
    assert told.result() == "42\n"
print("as expected")
