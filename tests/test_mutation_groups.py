"""tests/mutation.toml: a pattern, file or test that a rename left behind is an error, as is an explained change of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import tool

groups = tool("mutation_groups")
CODE = """
def connect(): ...

class Queue:
    def join(self): ...

    @staticmethod
    def limit(): ...

    @property
    def length(self): ...
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one source file and one file of tests."""
    (tmp_path / "src" / "part").mkdir(parents=True)
    (tmp_path / "src" / "part" / "pipeline.py").write_text(CODE)
    (tmp_path / "test_pipeline.py").touch()
    return tmp_path


def problems(root: Path, *, functions: list[str], **changed: list[str]) -> list[str]:
    options = {"source": "src", "files": ["part/pipeline.py"], "tests": ["test_pipeline.py"], **changed}
    return groups.problems(groups.Group("one", functions=functions, **options), root)


@pytest.mark.parametrize("pattern", ["pipeline.*", "pipeline.connect", "Queue.join", "Queue.lim*", "join"])
def test_a_pattern_matches_the_end_of_a_functions_dotted_name(root: Path, pattern: str) -> None:
    assert problems(root, functions=[pattern]) == []


@pytest.mark.parametrize("pattern", ["line.*", "Queue.leave", "oin", "Queue.length"])
def test_a_pattern_that_matches_no_function_that_mutmut_changes_is_an_error(root: Path, pattern: str) -> None:
    (problem,) = problems(root, functions=["pipeline.*", pattern])
    assert problem == (
        f'one: "{pattern}" matches no function that mutmut changes in part/pipeline.py, so it tests nothing; '
        "correct it in tests/mutation.toml, for example after a rename"
    )


def test_a_file_or_test_that_is_gone_is_an_error(root: Path) -> None:
    assert problems(root, functions=["pipeline.*"], files=["part/pipeline.py", "part/gone.py"]) == [
        "one: src/part/gone.py does not exist; correct it in tests/mutation.toml"
    ]
    assert problems(root, functions=["pipeline.*"], tests=["test_gone.py"]) == [
        "one: test_gone.py does not exist; correct it in tests/mutation.toml"
    ]


def test_an_explained_change_of_a_function_of_no_group_is_an_error(root: Path) -> None:
    one = groups.Group("one", "src", ["part/pipeline.py"], ["Queue.*"], ["test_pipeline.py"])
    assert groups.unowned(["part.pipeline.Queue.join", "part.pipeline.connect"], [one], root) == [
        "part.pipeline.connect: listed in tests/mutation-survivors.toml, and no group changes it; "
        "correct the name, or remove the entry"
    ]


def test_the_groups_and_the_explained_changes_name_what_exists() -> None:
    assert groups.check() == []
