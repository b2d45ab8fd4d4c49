"""SandboxFusion's SDK: languages, cells, files, errors, time limits, concurrency; sync and async."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox_fusion import (
    RunCodeRequest,
    RunJupyterRequest,
    RunStatus,
    SummaryMapping,
    run_code,
    run_code_async,
    run_concurrent,
    run_jupyter,
    run_jupyter_async,
    set_endpoint,
    summary_run_code_result,
)

sys.path.append(str(Path(__file__).parents[1]))
from lost import kill_sidecar

set_endpoint(f"{os.environ['SANDLOT_URL']}/fusion/{os.environ['SANDLOT_API_KEY']}/")

python = RunCodeRequest(code="print(input()[::-1])", language="python", stdin="abc")
assert run_code(python).run_result.stdout == "cba\n"
assert asyncio.run(run_code_async(python)).run_result.stdout == "cba\n"

cpp = '#include <fstream>\nint main() { std::string s; std::ifstream("in") >> s; std::ofstream("out") << s << s; }'
given = base64.b64encode(b"xy").decode()
told = run_code(RunCodeRequest(code=cpp, language="cpp", files={"in": given}, fetch_files=["out"]))
assert told.status == RunStatus.Success, told
assert told.compile_result.return_code == 0
assert base64.b64decode(told.files["out"]) == b"xyxy"

cells = ["s = open('in').read(); s", "1 / 0", "print(s)\nopen('out', 'w').write(s * 2);"]
notebook = RunJupyterRequest(cells=cells, files={"in": given}, fetch_files=["out"])
for told in (run_jupyter(notebook), asyncio.run(run_jupyter_async(notebook))):
    assert told.status == RunStatus.Success, told
    assert told.driver.return_code == 0
    assert told.cells[0].display == [{"text/plain": "'xy'"}]
    assert told.cells[1].error[0]["ename"] == "ZeroDivisionError"
    assert told.cells[2].stdout == "xy\n"
    assert base64.b64decode(told.files["out"]) == b"xyxy"
late = run_jupyter(RunJupyterRequest(cells=["print(1)", "while True: pass"], total_timeout=1.5))
assert (late.status, late.driver.status.value) == (RunStatus.Failed, "TimeLimitExceeded"), late

mapping = SummaryMapping(CompileFailed="compile", RunFailed="run", RunTimeout="time")
ends = {
    "compile": RunCodeRequest(code="int main() {", language="cpp"),
    "run": RunCodeRequest(code="exit 1", language="bash"),
    "time": RunCodeRequest(code="sleep 60", language="bash", run_timeout=0.3),
    "Success": RunCodeRequest(code="true", language="bash"),
}
for expected, request in ends.items():
    assert summary_run_code_result(run_code(request), mapping) == expected, expected

requests = [RunCodeRequest(code=f"echo {number}", language="bash") for number in range(20)]
answers = run_concurrent(run_code, args=[[request] for request in requests])
assert [answer.run_result.stdout for answer in answers] == [f"{number}\n" for number in range(20)]

try:
    run_code(RunCodeRequest(code="", language="lua"), max_attempts=1)
except Exception as error:
    assert "'lua' needs the program 'lua'" in str(error), error
else:
    raise AssertionError("lua is not there")

with ThreadPoolExecutor(1) as callers:
    lasting = RunCodeRequest(code="sleep 1.25804; echo done", language="bash")
    future = callers.submit(run_code, lasting, max_attempts=1)
    kill_sidecar("1.25804")
    assert future.result().run_result.stdout == "done\n", future.result()
print("as expected")
