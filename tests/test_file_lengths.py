"""tools/file_lengths.py finds each tracked file that is too long, and no generated one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tools import tool

file_lengths = tool("file_lengths")


def test_long_files_are_named_with_their_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "x = 1\n" * 300
    texts = {
        "fits.py": long,
        "part/long.py": f"y = 2\n{long}",
        "one_program.py": f"y = 2\n{long}",
        "copied.py": f"# A copy by tools/copy.py: do not change it.\n{long}",
        "mentions.py": f'"""Reads generated files."""\n\nMARK = "do not change it"\n{long}',
        "untracked.py": f"y = 2\n{long}",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    tracked = [name for name in texts if name != "untracked.py"]
    subprocess.run(["git", "add", *tracked], cwd=tmp_path, check=True)
    assert file_lengths.main(tmp_path, {"one_program.py": "it is sent", "fits.py": "it was long"}) == 1
    found = capsys.readouterr().out.splitlines()
    assert [line.partition(", and")[0].partition(": remove")[0] for line in found] == [
        "mentions.py: has 303 lines",
        "part/long.py: has 301 lines",
        "fits.py: is no exception any more",
    ]
