"""Two starts at the same time: the second waits for the first, also when the first is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.lock import exclusive

ROOT = Path(__file__).resolve().parents[2]
HOLD = (
    "import sys; from pathlib import Path; from tests.cluster.lock import exclusive\n"
    "with exclusive(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


def holder(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_second_waits_and_a_killed_holder_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with holder(path) as second:
            assert second.stdout is not None
            assert second.stderr is not None
            assert "waiting for another program" in second.stderr.readline()
            assert second.poll() is None
            first.kill()
            assert second.stdout.readline() == "held\n"
            assert second.stdin is not None
            second.stdin.close()
            assert second.wait(timeout=60) == 0


def test_it_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with exclusive(tmp_path / "lock"):
            assert (tmp_path / "lock").exists()
