"""The registries beside the nodes: the first outlives the program that starts it, a test's own ends with its block."""

from __future__ import annotations

import json
import os
import select
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
OWN = """
import sys
from pathlib import Path
from tests.cluster import registry
from tests.cluster.engine import Engine
engine = Engine(provider=sys.argv[1], node_image="", netns=None)
with registry.another(engine, nodes=["node"], host="own.test:5055", directory=Path(sys.argv[2])) as own:
    print(own.address)
"""
PROVIDER = '#!/bin/sh\necho "$@" >> "$0.calls"\necho default via 192.0.2.1 dev eth0\n'


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def started(
    directory: Path, text: str, *words: str, pass_fds: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run this program, with the directory's programs in place of the cluster's."""
    provider = program(directory / "bin" / "provider", PROVIDER)
    places = {"SANDLOT_CLUSTER_CACHE": str(directory), "SANDLOT_CLUSTER_BIN": str(directory / "bin")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", text, str(provider), *words],
        cwd=ROOT,
        pass_fds=pass_fds,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_outlives_the_program_that_starts_it(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "registry", "#!/bin/bash\nexec -a registry sleep 600\n")
    (tmp_path / "state").mkdir()
    reader, writer = os.pipe()
    done = started(tmp_path, START, pass_fds=(writer,))
    os.close(writer)
    pid = json.loads((tmp_path / "state" / "registry.json").read_text())["pid"]
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert b"registry" in Path(f"/proc/{pid}/cmdline").read_bytes()
        # It has no file of whoever has started it, such as one that is locked.
        assert select.select([reader], [], [], 0)[0] == [reader]
        # Not of the terminal or the session of whoever has started it.
        assert os.getsid(pid) == pid
    finally:
        os.close(reader)
        os.kill(pid, 9)


def test_one_of_its_own_ends_with_its_block_and_nodes_forget_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    serves = f"#!/bin/bash\necho $$ > {own}/pid\necho asked\nexec sleep 600\n"
    program(tmp_path / "bin" / "registry", serves)
    done = started(tmp_path, OWN, str(own))
    assert (done.returncode, done.stdout, done.stderr) == (0, "192.0.2.1:5055\n", "")
    settings = json.loads((own / "registry.yaml").read_text())
    assert settings["http"]["addr"] == "192.0.2.1:5055"
    assert settings["storage"]["filesystem"]["rootdirectory"].startswith(f"{own}/")
    calls = (tmp_path / "bin" / "provider.calls").read_text().splitlines()
    assert "hosts.toml" in calls[1]
    assert calls[2].split() == ["exec", "node", "rm", "-r", "/etc/containerd/certs.d/own.test:5055"]
    pid = own / "pid"
    assert not pid.exists() or not Path(f"/proc/{pid.read_text().strip()}").exists()
