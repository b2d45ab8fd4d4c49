"""Each of SandboxFusion's languages on this machine's own root: it runs, or its error names what the machine lacks."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest
from sandlot_gateway.fusion_option import LANGUAGES

from tests import plain_http
from tests.frameworks.fusion_programs import programs
from tests.stack import Stack, private_stack

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

# What the page says that an image needs; a word with a slash is a pattern of files.
NEEDS = {
    "python": "python|python3", "python_gpu": "python|python3", "pytest": "pytest", "bash": "bash", "cpp": "g++",
    "cuda": "nvcc", "go": "go", "go_test": "go", "java": "javac java",
    "junit": "javac java /usr/share/java/junit-platform-console*.jar", "nodejs": "node", "typescript": "tsx",
    "jest": "jest", "php": "php", "csharp": "dotnet", "rust": "rustc", "lua": "lua", "R": "Rscript",
    "perl": "perl", "D_ut": "dmd|ldmd2", "ruby": "ruby", "scala": "scalac scala", "julia": "julia",
    "kotlin_script": "kotlin", "verilog": "iverilog vvp", "lean": "lean", "swift": "swiftc", "racket": "racket",
}  # fmt: skip
PROGRAMS = programs()


@pytest.fixture
def _no_leaks() -> None:
    """All of the stack is looked at instead, see `stack`."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--fusion", "host", "--fusion-sandboxes", "2") as running:
        yield running


def run(stack: Stack, code: str, language: str, **fields: Any) -> dict[str, Any]:
    body = {"code": code, "language": language, "compile_timeout": 60, "run_timeout": 60, **fields}
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    answer = plain_http.post(f"{stack.url}/run_code", json=body, headers=headers, timeout=140)
    assert answer.status_code == 200, answer.text
    return answer.json()


def lacking(stack: Stack, needs: str) -> list[str]:
    """Those of the words that a sandbox of this machine does not find."""
    looks = {
        word: f"ls {word}" if "/" in word else " || ".join(f"command -v {name}" for name in word.split("|"))
        for word in needs.split()
    }
    code = "\n".join(f"({look}) >/dev/null 2>&1 || echo '{word}'" for word, look in looks.items())
    return run(stack, code, "bash")["run_result"]["stdout"].split()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", LANGUAGES)
def test_it_runs_or_tells_what_is_lacking(stack: Stack, language: str) -> None:
    absent = lacking(stack, NEEDS[language]) if language in NEEDS else ["not supported"]
    if absent:
        told = run(stack, "1", language)
        assert told["status"] == "SandboxError"
        assert (told["compile_result"], told["run_result"]) == (None, None)
        assert f"language {language!r}" in told["message"]
        assert any(word.split("|")[0] in told["message"] for word in absent)
        return
    program = PROGRAMS[language]
    given = {"in.txt": base64.b64encode(b"xy").decode()}
    told = run(stack, program.works, language, stdin="21\n", files=given, fetch_files=["out.txt"])
    assert told["status"] == "Success", told
    assert program.stdout in told["run_result"][program.stream]
    assert base64.b64decode(told["files"]["out.txt"]) == b"xyxy"
    assert (told["compile_result"] is not None) == program.compiled
