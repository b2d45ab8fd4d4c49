"""Each of SandboxFusion's languages on this machine's own root: it runs, or its error names what the machine lacks.

Every machine of the tests has the languages in ALWAYS. Of the others a machine may have anything, also programs that are
too old or that lack parts: what they need beyond programs is looked at first, without the route under test.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from sandlot_gateway.fusion_option import LANGUAGES

from tests import plain_http
from tests.frameworks.fusion_programs import programs
from tests.stack import Stack, private_stack

pytestmark = [
    pytest.mark.heavy,  # compilers
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
ALWAYS = ("python", "python_gpu", "bash", "perl", "cpp")
# What a language needs besides its programs; a command that fails on a machine where they are of no use.
_JAVA = "printf 'class P { String s = \"\".repeat(2); }' > P.java && javac P.java && java -version"
_JUPITER = "ls /usr/share/java/junit-jupiter-api*.jar /usr/share/java/junit-jupiter-engine*.jar"
_PRESETS = 'node -e \'require.resolve("@babel/preset-env"); require.resolve("@babel/preset-typescript")\''
WORKS = {
    "pytest": "pytest --version", "cuda": "echo 'int main() {}' > p.cu && nvcc p.cu -o p && ./p", "go": "go env GOROOT",
    "go_test": "go env GOROOT", "java": _JAVA, "junit": f"{_JAVA} && {_JUPITER}", "nodejs": "node --version",
    "typescript": "tsx --version", "jest": f"jest --version && {_PRESETS}", "php": "php --version",
    "rust": "echo 'fn main() {}' > p.rs && rustc p.rs -o p && ./p", "lua": "lua -e 'assert(_VERSION >= \"Lua 5.3\")'",
    "R": "Rscript --version", "D_ut": "dmd --version || ldmd2 --version", "ruby": "ruby --version",
    "scala": "scalac -version", "julia": "julia --version", "kotlin_script": "kotlin -version",
    "verilog": "iverilog -V", "swift": "echo 'print(1)' > p.swift && swiftc p.swift -o p && ./p",
    "racket": "racket --version",
}  # fmt: skip
PROGRAMS = programs()
AT_MOST_REPEATED = 3


@pytest.fixture
def _no_leaks() -> None:
    """All of the stack is looked at instead, see `stack`."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--fusion", "host", "--fusion-sandboxes", "2") as running:
        yield running


def run(stack: Stack, code: str, language: str, **fields: Any) -> dict[str, Any]:
    """Run code as clients do: they repeat what is answered with 504, when the machine is too busy for it."""
    body = {"code": code, "language": language, "compile_timeout": 60, "run_timeout": 60, **fields}
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    answer = plain_http.post(f"{stack.url}/run_code", json=body, headers=headers, timeout=140)
    for _ in range(AT_MOST_REPEATED):
        if answer.status_code != 504:
            break
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


def named(word: str) -> str:
    return f"needs a JAR {word}" if "/" in word else f"needs the program '{word.split('|')[0]}'"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("language", LANGUAGES)
def test_it_runs_or_tells_what_is_lacking(stack: Stack, language: str) -> None:
    if language not in NEEDS:
        assert f"language {language!r} is not supported" in run(stack, "1", language)["message"]
        return
    absent = lacking(stack, NEEDS[language])
    if absent:
        assert language not in ALWAYS
        told = run(stack, "1", language)
        assert told["status"] == "SandboxError"
        assert (told["compile_result"], told["run_result"]) == (None, None)
        assert f"language {language!r}" in told["message"]
        assert any(named(word) in told["message"] for word in absent), told
        return
    if language not in PROGRAMS:
        pytest.skip(f"this machine has {language}, and no image of the tests: there is no program for it")
    if language not in ALWAYS:
        looked = run(stack, WORKS[language], "bash")["run_result"]
        if looked["return_code"] != 0:
            pytest.skip(f"this machine's {language} is of no use: {looked['stderr'][-300:]}")
    program = PROGRAMS[language]
    given = {"in.txt": base64.b64encode(b"xy").decode()}
    told = run(stack, program.works, language, stdin="21\n", files=given, fetch_files=["out.txt"])
    assert told["status"] == "Success", told
    assert program.stdout in told["run_result"][program.stream]
    assert base64.b64decode(told["files"]["out.txt"]) == b"xyxy"
    assert (told["compile_result"] is not None) == program.compiled


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"code": "# " + "public " * 1_000_000, "language": "python"}, 200),
        (b'"' + b'\\"' * 1_000_000, 422),
        (b'{"code": "\\ud800", "language": "bash"}', 422),
        (b'{"code": "", "stdin": "\\ud800", "language": "bash"}', 422),
        (b'{"code": "", "language": "pytest", "args": ["\\ud800"]}', 422),
    ],
    ids=["code", "quotes", "surrogate", "in-stdin", "in-args"],
)
def test_no_text_is_too_much_for_the_gateway(stack: Stack, body: Any, status: int) -> None:
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = plain_http.post(f"{stack.url}/run_code", content=content, headers=headers, timeout=30)
    assert answer.status_code == status, answer.text
