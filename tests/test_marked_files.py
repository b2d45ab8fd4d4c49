"""tools/marked_files.py names every file with a test of a mark: else tools/test.sh would pass over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.collected import COLLECTED
from tests.tools import tool

marked_files = tool("marked_files").marked_files


def test_marks_in_the_file_its_conftest_and_its_lists_are_found(tmp_path: Path) -> None:
    texts = {
        "tests/world.py": "NEEDS = [\n    pytest.mark.programs,\n]\nOTHER = [\n    1,\n]\n",
        "tests/test_itself.py": "@pytest.mark.programs\ndef test(): ...\n",
        "tests/test_list.py": "from tests.world import NEEDS\npytestmark = NEEDS\n",
        "tests/test_other.py": "from tests.world import OTHER\n@pytest.mark.clients\ndef test(): ...\n",
        "tests/part/conftest.py": "item.add_marker(pytest.mark.programs)\n",
        "tests/part/deep/test_below.py": "def test(): ...\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [path.name for path in marked_files({"programs"}, tmp_path)]
    assert found == ["test_below.py", "test_itself.py", "test_list.py"]


@pytest.mark.parametrize("mark", ["clients", "console", "loads", "programs", "heavy", "alone"])
def test_every_collected_test_is_in_a_file_that_is_named(mark: str, request: pytest.FixtureRequest) -> None:
    named = set(marked_files({mark}))
    missing = {item.path for item in request.config.stash[COLLECTED] if item.get_closest_marker(mark)} - named
    assert not missing, "give the list of marks a name, and its module or conftest.py the text `mark.NAME`"
