"""What a cluster says reaches a terminal without what that would obey."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot.cli.cluster import command, report
from sandlot.cli.cluster.finding import problem
from sandlot.cli.cluster.options import Options

from tests.cli.cluster.worlds import Cluster

CLEARS = "\x1b[2J"


def test_why_it_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\nprintf 'forbidden \\033[2J\\033]0;x\\007' >&2\nexit 1\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert command.check(Options(None, None, None, None), json=False) == command.CANNOT_RUN
    said = capsys.readouterr().err
    assert "forbidden ?[2J?]0;x?" in said
    assert said.removesuffix("\n").isprintable()


def test_a_finding() -> None:
    world = Cluster().read()
    told = list(report.lines(world, [problem("pool p", f"it says {CLEARS}", f"do {CLEARS}")]))
    assert all(map(str.isprintable, told))
    assert "it says ?[2J" in told[1]
