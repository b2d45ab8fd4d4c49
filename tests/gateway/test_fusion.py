"""SandboxFusion's run_code over plain HTTP on the real local backend: answers, limits and isolation."""

from __future__ import annotations

import base64
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests import plain_http
from tests.gateway.audit_records import records
from tests.gateway.fusion_stack import KEY, ONE_SANDBOX, SANDBOXES, _no_leaks, run, send, stack, workers
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

__all__ = ["_no_leaks", "stack"]

RARE = {"lean": "lean", "racket": "racket", "julia": "julia", "lua": "lua"}  # with their programs


def test_an_answer_has_every_field_of_sandbox_fusions(stack: Stack) -> None:
    files = {"in/a.txt": base64.b64encode(b"of the request").decode(), "b.txt": None}
    code = "cat; cat in/a.txt; ls; printf '\\xff' > out; echo wrong >&2"
    began = time.monotonic()
    told = run(stack, code, stdin="of stdin, ", files=files, fetch_files=["out", "in", "absent"])
    assert 0 < told["run_result"].pop("execution_time") < time.monotonic() - began
    names = told["run_result"].pop("stdout").removeprefix("of stdin, of the request").split()
    assert names[0] == "in"
    assert [name.startswith("tmp") for name in names[1:]] == [True]
    assert told.pop("executor_pod_name") in [each["id"] for each in workers(stack)]
    assert told == {
        "status": "Success",
        "message": "",
        "compile_result": None,
        "run_result": {"status": "Finished", "return_code": 0, "stderr": "wrong\n"},
        "files": {"out": "/w=="},
    }


@pytest.mark.parametrize(
    ("code", "fields", "status", "return_code", "stdout"),
    [
        ("exit 3", {}, "Finished", 3, ""),
        ("kill -SEGV $$", {}, "Finished", -11, ""),
        ("exec python3 -c 'print(len(bytearray(1 << 29)))'", {"memory_limit_MB": 64}, "Finished", -9, ""),
        ("echo begun; sleep 60", {"run_timeout": 6}, "TimeLimitExceeded", None, "begun\n"),
        (": $(yes | head -c 3000000 >&2); echo end", {}, "Finished", 0, "end\n"),
    ],
)
def test_codes_own_ends_are_results(
    stack: Stack,
    code: str,
    fields: dict[str, Any],
    status: str,
    return_code: int | None,
    stdout: str,
) -> None:
    told = run(stack, code, **fields)
    result = told["run_result"]
    assert (result["status"], result["return_code"], result["stdout"]) == (status, return_code, stdout)
    assert told["status"] == ("Success" if return_code == 0 else "Failed")
    assert len(result["stderr"]) <= 1 << 20


def test_a_compile_error_runs_nothing(stack: Stack) -> None:
    told = run(stack, "int main() { return x; }", "cpp")
    assert told["status"] == "Failed"
    assert told["run_result"] is None
    assert told["compile_result"]["return_code"] == 1
    assert "error" in told["compile_result"]["stderr"]
    late = run(stack, "int main() {}", "cpp", compile_timeout=0)
    assert late["compile_result"]["status"] == "TimeLimitExceeded"
    program = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << 2 * n; }"
    assert run(stack, program, "cpp", stdin="21")["run_result"]["stdout"] == "42"


def test_what_no_repetition_helps_is_a_sandbox_error(stack: Stack) -> None:
    language, program = next(each for each in RARE.items() if shutil.which(each[1]) is None)
    absent = run(stack, "print(1)", language)
    assert absent["status"] == "SandboxError"
    assert f"needs the program {program!r}" in absent["message"]
    assert "the image 'host'" in absent["message"]
    assert "'sql' is not supported" in run(stack, "select 1", "sql")["message"]
    both = {"a": "", "a/b": ""}
    clash = run(stack, "true", files=both)
    assert clash["status"] == "SandboxError"
    assert "a" in clash["message"]


def test_a_language_runs_where_the_setting_says(stack: Stack) -> None:
    told = run(stack, "print <STDIN>", "perl", stdin="x")
    assert told["run_result"]["stdout"] == "x"
    made = next(each for each in workers(stack) if each["id"] == told["executor_pod_name"])
    assert made["networkAccess"] is False
    answer = send(stack, "", "php")
    assert answer.status_code == 503
    assert "'missing'" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"language": "python"}, "code"),
        ({"code": "", "language": "cobol"}, "language"),
        ({"code": "", "language": "python", "files": {"a": "abc"}}, "files"),
        ({"code": "", "language": "python", "run_timeout": -1}, "run_timeout"),
        ({"code": "", "language": "python", "memory_limit_MB": "x"}, "memory_limit_MB"),
    ],
)
def test_a_bad_request_names_its_field(stack: Stack, body: dict[str, Any], field: str) -> None:
    answer = plain_http.post(f"{stack.url}/fusion/{KEY}/run_code", json=body)
    assert answer.status_code == 422
    assert [one["loc"] for one in answer.json()["detail"]] == [["body", field]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"args": [0] * 5000},
        {"fetch_files": [0] * 5000},
        {"files": dict.fromkeys(map(str, range(5000)), 0)},
        {"files": {"long" * 5000: "abc"}},
        {"files": dict.fromkeys(map(str, range(1001)), "")},
        {"args": ["a"] * 1001},
        {"fetch_files": ["a"] * 1001},
    ],
    ids=["args", "fetch", "files", "long-name", "many-files", "many-args", "many-fetched"],
)
def test_a_body_with_many_wrong_values_has_one_short_error(stack: Stack, wrong: dict[str, Any]) -> None:
    body = {"code": "", "language": "bash", **wrong}
    answer = plain_http.post(f"{stack.url}/fusion/{KEY}/run_code", json=body)
    assert answer.status_code == 422
    [found] = answer.json()["detail"]
    assert found["loc"][:2] == ["body", *wrong]
    assert len(answer.content) < 1000


def test_a_bad_patience_is_named(stack: Stack) -> None:
    answer = plain_http.post(f"{stack.url}/fusion/{KEY}/run_code?patience=long", json={"code": ""})
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["query", "patience"])


def test_a_thousand_files_are_written(stack: Stack) -> None:
    told = run(stack, "ls | wc -l", files=dict.fromkeys(map(str, range(1000)), ""))
    assert told["run_result"]["stdout"] == "1001\n", told


def test_code_finds_nothing_of_earlier_code(stack: Stack) -> None:
    before = run(stack, "touch /tmp/mine ../stays; (sleep 61.5 &) ; rm -f $(command -v perl); echo $PWD")
    assert before["status"] == "Success"
    look = "ls -A /tmp .. | grep -c -e mine -e stays; grep -lz 61.5 /proc/[0-9]*/cmdline 2>/dev/null; command -v perl >&2"
    with ThreadPoolExecutor(SANDBOXES) as callers:
        for told in callers.map(lambda _: run(stack, look), range(2 * SANDBOXES)):
            assert told["run_result"]["stdout"] == "0\n", told
            assert told["run_result"]["stderr"]


def test_64_callers_at_once_share_few_sandboxes(stack: Stack) -> None:
    with ThreadPoolExecutor(64) as callers:
        told = list(callers.map(lambda number: run(stack, f"echo {number}"), range(64)))
    assert [each["run_result"]["stdout"] for each in told] == [f"{number}\n" for number in range(64)]
    assert len({each["executor_pod_name"] for each in told}) <= SANDBOXES
    assert len(workers(stack)) <= SANDBOXES + 1  # one in the pool


def test_a_tenants_quota_bounds_its_sandboxes(stack: Stack) -> None:
    def one(language: str) -> str:
        body = {"code": "print 1", "language": language, "compile_timeout": 60, "run_timeout": 60}
        url = f"{stack.url}/fusion/{ONE_SANDBOX}/run_code"
        return plain_http.post(url, json=body, timeout=200).json()["executor_pod_name"]

    with ThreadPoolExecutor(4) as callers:
        [bash] = set(callers.map(one, ["bash"] * 8))
        assert one("perl") != bash  # which needs another image, so this one gives way


def test_the_key_is_in_no_log_and_no_metric(stack: Stack) -> None:
    run(stack, "true")
    wrong = plain_http.post(f"{stack.url}/fusion/a-stranger/run_code", json={"code": "", "language": "bash"})
    assert wrong.status_code == 401
    assert plain_http.get(f"{stack.url}/fusion/{KEY}/api/v1/sandbox").status_code == 404
    assert plain_http.get(f"{stack.url}/fusion/{KEY}/v1/ping").json() == "pong"
    for prefix, status in (
        ("//fusion/", 200),
        ("/%66usion/", 200),
        ("/fusion%2F", 404),
        ("/%2Ffusion/", 404),
    ):
        answer = plain_http.get(f"{stack.url}{prefix}{KEY}/v1/ping")
        assert answer.status_code == status, prefix
    by_header = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "by-header"}
    body = {"code": "true", "language": "bash", "compile_timeout": 60, "run_timeout": 60}
    answer = plain_http.post(f"{stack.url}/run_code", json=body, headers=by_header, timeout=200)
    assert answer.json()["status"] == "Success"
    path = stack.state_dir / "audit.log"
    # In the order of the calls' ends, so all earlier records are there.
    [record] = wait_until(
        lambda: [each for each in records(path, growing=True) if each["request"] == "by-header"]
    )
    assert (record["action"], record["tenant"], record["status"]) == ("code.run", "alpha", 200)
    assert record["sandbox"] == answer.json()["executor_pod_name"]
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    metrics = plain_http.get(f"{stack.url}/metrics", headers=headers).text
    for text in (stack.log(), path.read_text(), metrics):
        assert text
        assert KEY not in text
        assert "a-stranger" not in text
