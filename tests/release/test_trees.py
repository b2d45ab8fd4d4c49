"""The trees of these tests are the same whatever the user's git is set to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release.trees import Tree


def test_who_signs_commits_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text('[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = "/no/gpg"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    assert Tree(tmp_path / "tree").git("log", "--format=%s") == "a tree\n"
