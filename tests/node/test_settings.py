"""Settings: each mistake names its variable; the token is a secret of some length."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandlot_node import settings

from tests.waiting import SECONDS


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandlot_node"],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_a_bad_setting_is_named_and_ends_the_start() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "SANDLOT_TOKEN_FILE: Field required" in done.stderr
    done = run(SANDLOT_TOKEN_FILE="/nowhere/token", SANDLOT_BUDGET="7")
    assert done.returncode == 2
    assert "SANDLOT_BUDGET: Input should be greater than" in done.stderr


@pytest.mark.parametrize("text", [None, "", "short", "\n  \n"])
def test_a_token_that_is_none_is_refused(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(settings.BadSettings, match=r"SANDLOT_TOKEN_FILE: .*token"):
        settings.token(path)


def test_white_space_around_the_token_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  a token of the tests\n")
    assert settings.token(tmp_path / "token") == "a token of the tests"
