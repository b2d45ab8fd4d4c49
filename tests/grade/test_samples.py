"""Users' files: what is accepted, and what an error says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from sandlot_grade.errors import InputError
from sandlot_grade.problems import Problem, read_problems
from sandlot_grade.program import build
from sandlot_grade.samples import read_samples

from tests.grade.plain import run_plain

PROBLEM = Problem(
    task_id="add",
    prompt="def add(a, b):\n",
    entry_point="add",
    test="def check(candidate):\n    assert candidate(1, 2) == 3\n",
    canonical_solution="    return a + b\n",
)


def _file(folder: Path, *lines: object) -> Path:
    path = folder / "samples.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def _read(path: Path, **options: int) -> list:
    return read_samples(path, problems=lambda: {"add": PROBLEM}, **options)


def test_all_forms_of_a_line(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        {"task_id": "add", "completion": "    return a + b\n"},
        "",
        {"task_id": "add", "code": "add = lambda a, b: b + a", "kind": "lambda"},
        {
            "prompt": "def f():\n",
            "completion": "    return 1\n",
            "test": "def check(c):\n    assert c() == 1",
            "entry_point": "f",
        },
        {"code": "x = 2", "test": "assert x == 2"},
    )
    rollouts = _read(path)
    assert [rollout.index for rollout in rollouts] == [0, 1, 2, 3]
    assert [rollout.task_id for rollout in rollouts] == ["add", "add", "line 4", "line 5"]
    assert [rollout.kind for rollout in rollouts] == ["sample", "lambda", "sample", "sample"]
    assert all(run_plain(rollout.program()).passed for rollout in rollouts)


def test_a_test_without_check_is_run_as_it_stands(tmp_path: Path) -> None:
    (wrong,) = _read(_file(tmp_path, {"code": "x = 1", "test": "assert x == 2", "entry_point": "x"}))
    run = run_plain(wrong.program())
    assert not run.passed
    assert "AssertionError" in run.stderr


def test_a_test_that_calls_its_check_itself_needs_no_entry_point(tmp_path: Path) -> None:
    test = "def check(f):\n    assert f() == 1\n\ncheck({})\n"
    as_assert = "def check(f):\n    return f() == 1\n\nassert len('x') and check({})\n"
    for call in (test, as_assert):
        path = _file(tmp_path, *({"code": "def f(): return 1", "test": call.format(f)} for f in ("f", "int")))
        assert [run_plain(rollout.program()).passed for rollout in _read(path)] == [True, False]


ASYNC = """
import asyncio

async def check(f):
    await asyncio.sleep(0)
    assert f() == 1
"""
IN_AN_IF = """
import sys

if sys.version_info >= (3, 8):
    def check(f):
        assert f() == 1
else:
    async def check(f):
        assert False
"""
IN_A_TRY = """
try:
    import nothing_of_this_name
except ImportError:
    async def check(f):
        assert f() == 1
"""
NEWER = "def check[T](f):\n    assert f() == 1\n"


@pytest.mark.parametrize("test", [ASYNC, IN_AN_IF, IN_A_TRY], ids=["async", "if", "try"])
def test_a_check_may_be_async_or_in_a_block(tmp_path: Path, test: str) -> None:
    lines = [{"code": f"def f(): return {n}", "test": test, "entry_point": "f"} for n in (1, 2)]
    runs = [run_plain(rollout.program()) for rollout in _read(_file(tmp_path, *lines))]
    assert [run.passed for run in runs] == [True, False]
    assert "AssertionError" in runs[1].stderr


def test_an_async_check_that_the_test_runs_itself(tmp_path: Path) -> None:
    test = ASYNC + "asyncio.run(check(f))\n"
    path = _file(tmp_path, *({"code": f"def f(): return {n}", "test": test} for n in (1, 2)))
    assert [run_plain(rollout.program()).passed for rollout in _read(path)] == [True, False]


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_check_that_only_a_newer_python_understands_is_called(kind: str) -> None:
    program = build(code="def f(): return 2", test=kind + NEWER, entry_point="f")
    assert "check(f)" in program.source.removeprefix(kind + NEWER)


def test_a_helper_named_check_is_the_tests_own_affair(tmp_path: Path) -> None:
    test = "class T:\n    def check(self, f):\n        assert f() == 1\n\nT().check(f)\n"
    path = _file(tmp_path, *({"code": f"def f(): return {n}", "test": test} for n in (1, 2)))
    assert [run_plain(rollout.program()).passed for rollout in _read(path)] == [True, False]


def test_first_limits_and_later_lines_are_not_read(tmp_path: Path) -> None:
    path = _file(tmp_path, {"task_id": "add", "completion": ""}, "not json")
    assert len(_read(path, first=1)) == 1


def test_problems_are_only_asked_for_when_needed(tmp_path: Path) -> None:
    def never() -> dict[str, Problem]:
        raise AssertionError("asked for")

    read_samples(_file(tmp_path, {"code": "x = 1", "test": "pass"}), problems=never)


@pytest.mark.parametrize(
    ("line", "field", "words"),
    [
        ("{", None, "is not JSON"),
        ("[1]", None, "must be a JSON object, not list"),
        ({"completion": "x"}, "task_id", "is missing"),
        ({"task_id": 3, "completion": "x"}, "task_id", "must be a string, not int"),
        ({"task_id": "sub", "completion": "x"}, "task_id", "'sub' is not a problem"),
        ({"task_id": "add"}, "completion", "is missing"),
        ({"task_id": "add", "completion": None}, "completion", "is missing"),
        ({"task_id": "add", "completion": "x", "code": "y"}, "code", "not both"),
        ({"code": "x", "test": 1}, "test", "must be a string, not int"),
        ({"code": "x", "test": "pass", "entry_point": "a b"}, "entry_point", "'a b' is not a Python name"),
        ({"code": "x", "test": "def check(f): pass"}, "entry_point", "is missing: 'test' defines check"),
        ({"code": "x", "test": "def check(f):\n    # check(f)\n    check(f)"}, "entry_point", "is missing"),
        (
            {"code": "x", "test": "async def check(f): pass"},
            "entry_point",
            "is missing: 'test' defines check",
        ),
        ({"code": "x", "test": "async def check(f): pass\ncheck(f)"}, "entry_point", "is missing"),
        (
            {"code": "x", "test": "class T:\n    def check(self): 1 / 0", "entry_point": "x"},
            "test",
            "inside a class",
        ),
        ({"code": "x", "test": "  def check(f): 1 / 0", "entry_point": "x"}, "test", "start it at column 1"),
        ({"code": "x", "test": "# it\n    assert x == 1"}, "test", "start it at column 1"),
        ({"code": "x", "test": "def check(f): yield", "entry_point": "x"}, "test", "remove the yield"),
        ({"task_id": "add", "completion": "'\ud83d"}, "completion", "character 2 is an unpaired surrogate"),
        ({"code": "\udc00", "test": ""}, "code", "unpaired surrogate"),
        ({"code": "", "test": "\ud83d"}, "test", "unpaired surrogate"),
        ({"code": "", "test": "", "kind": "\ud83d"}, "kind", "unpaired surrogate"),
        ({"code": "", "test": "", "task_id": "\ud83d"}, "task_id", "unpaired surrogate"),
        ({"completion": "", "test": "", "prompt": "\ud83d"}, "prompt", "unpaired surrogate"),
        ({"code": "", "test": "", "entry_point": "\ud83d"}, "entry_point", "unpaired surrogate"),
        ('{"code": "", "test": "", "more": ' + "[" * 200_000, None, "is nested too deeply"),
    ],
)
def test_an_error_names_file_line_and_field(
    tmp_path: Path, line: object, field: str | None, words: str
) -> None:
    path = _file(tmp_path, {"task_id": "add", "completion": ""}, line)
    with pytest.raises(InputError) as caught:
        _read(path)
    assert (caught.value.path, caught.value.line, caught.value.field) == (path, 2, field)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert words in str(caught.value)
    str(caught.value).encode()
    if field is not None:
        assert f"field {field!r}" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        _read(tmp_path / "nowhere.jsonl")
    with pytest.raises(InputError, match="has no samples"):
        _read(_file(tmp_path, ""))
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"code": "x = 1", "test": "pass"}\n')[:-12])
    with pytest.raises(InputError, match="cannot be read"):
        _read(broken)
    content = bytearray(gzip.compress(b'{"code": "x = 1", "test": "pass"}\n'))
    content[10] = 0xFF
    broken.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read.*; compress or copy it again") as caught:
        _read(broken)
    assert caught.value.path == broken


def test_both_halves_of_a_pair_are_a_character(tmp_path: Path) -> None:
    path = _file(tmp_path, '{"code": "x = \'\\ud83d\\ude00\'", "test": "assert len(x) == 1"}')
    (rollout,) = _read(path)
    assert run_plain(rollout.program()).passed


def test_problem_files(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl.gz"
    line = {"task_id": "t", "prompt": "def f():\n", "entry_point": "f", "test": "def check(c): pass"}
    path.write_bytes(gzip.compress(json.dumps(line).encode()))
    assert read_problems(path)["t"].canonical_solution is None
    path.write_bytes(gzip.compress((json.dumps(line) + "\n" + json.dumps(line)).encode()))
    with pytest.raises(InputError, match="'t' occurs twice") as caught:
        read_problems(path)
    assert caught.value.line == 2
    line["test"] = "class T:\n    def check(self): pass"
    path.write_bytes(gzip.compress(json.dumps(line).encode()))
    with pytest.raises(InputError, match="field 'test': tests nothing: it defines check inside a class"):
        read_problems(path)
    line["test"] = "def check(c): pass"
    del line["entry_point"]
    path.write_bytes(gzip.compress(json.dumps(line).encode()))
    with pytest.raises(InputError, match="field 'entry_point': is missing"):
        read_problems(path)


def test_a_marker_printed_too_early_is_no_pass() -> None:
    program = build(code="x = 1", test="assert x == 1", entry_point=None)
    good = {"verdict": "exited", "exit_code": 0, "truncated": False}
    assert program.passed(stdout=f"noise\n{program.marker}\n", **good)
    assert not program.passed(stdout=f"{program.marker}\nmore\n", **good)
    assert not program.passed(stdout="", **good)
    assert not program.passed(stdout=program.marker + "\n", **{**good, "exit_code": 1})
    assert not program.passed(stdout=program.marker + "\n", **{**good, "verdict": "timeout"})
    assert not program.passed(stdout=program.marker + "\n", **{**good, "truncated": True})
    assert build(code="x = 1", test="assert x == 1", entry_point=None).marker != program.marker
