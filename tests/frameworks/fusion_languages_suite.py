"""Each language of SandboxFusion by its unmodified SDK: a program that works, one that fails, one that does not compile,
one without an end. pytest of the SDK's environment runs it, with `SANDLOT_FUSION_ABSENT` (JSON: language to reason).
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from sandbox_fusion import RunCodeRequest, RunCodeResponse, run_code, set_endpoint

sys.path.append(str(Path(__file__).parent))
from fusion_programs import Program, programs

set_endpoint(f"{os.environ['SANDLOT_URL']}/fusion/{os.environ['SANDLOT_API_KEY']}")

PROGRAMS = programs()
ABSENT: dict[str, str] = json.loads(os.environ["SANDLOT_FUSION_ABSENT"])
EACH = pytest.mark.parametrize("language", [*PROGRAMS])


@pytest.fixture
def program(language: str) -> Program:
    return PROGRAMS[language]


def sent(program: Program, code: str, **fields: Any) -> RunCodeResponse:
    request = {"compile_timeout": 60, "run_timeout": 60, **fields}
    return run_code(RunCodeRequest(code=code, language=program.language, **request))


@EACH
def test_it_runs_with_input_and_files(program: Program) -> None:
    given = {"in.txt": base64.b64encode(b"xy").decode()}
    told = sent(program, program.works, stdin="21\n", files=given, fetch_files=["out.txt"])
    assert told.status.value == "Success", told
    assert program.stdout in getattr(told.run_result, program.stream), told
    assert base64.b64decode(told.files["out.txt"]) == b"xyxy"
    assert (told.compile_result is not None) == program.compiled


@EACH
def test_its_failure_is_told(program: Program) -> None:
    told = sent(program, program.fails)
    assert told.status.value == "Failed", told
    assert (told.run_result.status.value, told.run_result.return_code) == ("Finished", program.code), told


@EACH
def test_code_that_is_wrong_is_told(program: Program) -> None:
    told = sent(program, program.broken)
    assert told.status.value == "Failed", told
    last = told.compile_result if program.compiled else told.run_result
    assert last.status.value == "Finished", told
    assert last.return_code not in (0, 126, 127), told
    assert last.stdout + last.stderr
    assert not program.compiled or told.run_result is None


@EACH
def test_its_time_is_limited(program: Program) -> None:
    told = sent(program, program.endless, run_timeout=program.seconds)
    assert told.status.value == "Failed", told
    last = told.run_result
    assert (last.status.value, last.return_code) == ("TimeLimitExceeded", None), told
    assert last.execution_time >= program.seconds
    assert program.partial in last.stdout, told


PLAIN = 'test("adds", () => { expect(1 + 1).toBe(2); });'
TYPED = 'import * as fs from "fs";\ntest("is", () => { const yes: boolean = fs.existsSync("."); expect(yes).toBe(true); });'


@pytest.mark.parametrize("language", ["jest"])
@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("package.json", '{"type": "module"}', TYPED),
        ("package.json", '{"type": "module", "babel": {"presets": []}}', PLAIN),
        ("babel.config.json", '{"presets": ["@babel/preset-env", "@babel/preset-typescript"]}', TYPED),
        ("babel.config.cjs", "module.exports = {};", PLAIN),
        ("babel.config.js", "module.exports = {};", PLAIN),
        (".babelrc", '{"presets": ["@babel/preset-env", "@babel/preset-typescript"]}', TYPED),
    ],
    ids=["module", "package", "json", "cjs", "js", "babelrc"],
)
def test_jest_runs_beside_a_configuration_of_the_request(
    program: Program, name: str, content: str, code: str
) -> None:
    told = sent(program, code, files={name: base64.b64encode(content.encode()).decode()})
    assert told.status.value == "Success", told
    assert "1 passed" in told.run_result.stderr


@pytest.mark.parametrize("language", ["junit"])
def test_junits_class_is_not_one_of_a_comment(program: Program) -> None:
    told = sent(program, "// public API of the class under test\n" + program.fails)
    assert "WrongTest" in told.run_result.stdout, told


@pytest.mark.parametrize("language", ["junit"])
def test_junit_without_a_name_that_a_file_can_have_is_told(program: Program) -> None:
    told = sent(program, program.fails.replace("WrongTest", "W" * 300))
    assert (told.status.value, told.compile_result.status.value) == ("Failed", "Finished"), told


@pytest.mark.parametrize("language", ["scala"])
def test_scala_without_an_object_is_told(program: Program) -> None:
    told = sent(program, "class Doubles")
    assert (told.status.value, told.run_result.status.value) == ("Failed", "Finished"), told
    assert told.run_result.return_code not in (0, 126, 127)


@pytest.mark.parametrize("language", [*ABSENT])
def test_what_is_absent_is_told(language: str) -> None:
    with pytest.raises(Exception, match=f"language '{language}'"):
        run_code(RunCodeRequest(code="1", language=language), max_attempts=1)
    pytest.skip(f"it answers SandboxError: {ABSENT[language]}")
