"""The registry beside the nodes: it outlives the program that starts it, which says nothing of it at its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# An engine whose nodes answer as this program says.
START = """
import sys
from tests.cluster import registry
from tests.cluster.engine import Engine
engine = Engine(provider=sys.argv[1], node_image="", netns=None)
assert registry.start(engine, nodes=["node"]) == registry.start(engine, nodes=["node"]) == "192.0.2.1:5000"
"""
PROVIDER = "#!/bin/sh\necho default via 192.0.2.1 dev eth0\n"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_it_outlives_the_program_that_starts_it(tmp_path: Path) -> None:
    provider = program(tmp_path / "bin" / "provider", PROVIDER)
    program(tmp_path / "bin" / "registry", "#!/bin/bash\nexec -a registry sleep 600\n")
    (tmp_path / "state").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", START, str(provider)],
        cwd=ROOT,
        env={
            **os.environ,
            "SANDLOT_CLUSTER_CACHE": str(tmp_path),
            "SANDLOT_CLUSTER_BIN": str(tmp_path / "bin"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    pid = json.loads((tmp_path / "state" / "registry.json").read_text())["pid"]
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert b"registry" in Path(f"/proc/{pid}/cmdline").read_bytes()
        # Not of the terminal or the session of whoever has started it.
        assert os.getsid(pid) == pid
    finally:
        os.kill(pid, 9)
