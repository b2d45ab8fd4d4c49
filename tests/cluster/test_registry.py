"""The registries beside the nodes: the first outlives the program that starts it, a test's own ends with its block."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
# An engine whose nodes answer as this program says.
START = """
import sys
from tests.cluster import registry
from tests.cluster.engine import Engine
engine = Engine(provider=sys.argv[1], node_image="", netns=None)
assert registry.start(engine, nodes=["node"]) == registry.start(engine, nodes=["node"]) == "127.0.0.1:5000"
"""
OWN = """
import sys
from pathlib import Path
from tests.cluster import registry
from tests.cluster.engine import Engine
engine = Engine(provider=sys.argv[1], node_image="", netns=None)
with registry.another(engine, nodes=["one", "two"], host=sys.argv[3], directory=Path(sys.argv[2])) as own:
    print(own.address)
"""
PROVIDER = '#!/bin/sh\necho "$@" >> "$0.calls"\necho default via 127.0.0.1 dev lo\n'
SERVES = "exec python3 -m http.server --bind 127.0.0.1 {port}"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def started(
    directory: Path, text: str, *words: str, pass_fds: tuple[int, ...] = (), provider: str = PROVIDER
) -> subprocess.CompletedProcess[str]:
    """Run this program, with the directory's programs in place of the cluster's."""
    engine = program(directory / "bin" / "provider", provider)
    places = {"SANDLOT_CLUSTER_CACHE": str(directory), "SANDLOT_CLUSTER_BIN": str(directory / "bin")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", text, str(engine), *words],
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


def own_one(
    directory: Path, *, then: str, provider: str = PROVIDER
) -> tuple[subprocess.CompletedProcess[str], str]:
    """What the program says that has a registry of its own, which does this, and the registry's host."""
    (directory / "own").mkdir(exist_ok=True)
    port = free_port()
    serves = f"#!/bin/bash\necho $$ > {directory}/own/pid\necho asked\n{then.format(port=port)}\n"
    program(directory / "bin" / "registry", serves)
    host = f"own.test:{port}"
    return started(directory, OWN, str(directory / "own"), host, provider=provider), host


def test_one_of_its_own_ends_with_its_block_and_nodes_forget_it(tmp_path: Path) -> None:
    done, host = own_one(tmp_path, then=SERVES)
    address = f"127.0.0.1:{host.partition(':')[2]}"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{address}\n", "")
    own = tmp_path / "own"
    settings = json.loads((own / "registry.yaml").read_text())
    assert settings["http"]["addr"] == address
    assert settings["storage"]["filesystem"]["rootdirectory"].startswith(f"{own}/")
    calls = (tmp_path / "bin" / "provider.calls").read_text().splitlines()
    forget = [f"exec {node} rm -rf /etc/containerd/certs.d/{host}" for node in ("two", "one")]
    assert [call for call in calls if " rm " in call] == forget
    assert len([call for call in calls if "hosts.toml" in call]) == 2
    assert not Path(f"/proc/{(own / 'pid').read_text().strip()}").exists()
    assert list((tmp_path / "state").iterdir()) == []


def test_all_nodes_forget_it_also_if_one_cannot_and_the_error_is_told(tmp_path: Path) -> None:
    provider = PROVIDER.replace("echo default", '[ "$2 $3" != "two rm" ] || exit 7\necho default')
    done, host = own_one(tmp_path, then=SERVES, provider=provider)
    assert done.returncode == 1
    assert "two rm -rf" in done.stderr
    assert "exit code 7" in done.stderr
    calls = (tmp_path / "bin" / "provider.calls").read_text().splitlines()
    assert calls[-1] == f"exec one rm -rf /etc/containerd/certs.d/{host}"
    assert not Path(f"/proc/{(tmp_path / 'own' / 'pid').read_text().strip()}").exists()


def test_one_that_ends_before_it_answers_is_an_error_with_its_log(tmp_path: Path) -> None:
    done, _ = own_one(tmp_path, then="echo the address is in use >&2; exit 3")
    assert done.returncode == 1
    assert "ended with 3:\nasked\nthe address is in use" in done.stderr
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.parametrize("ends", ["cluster down", "the next run"])
def test_one_that_a_killed_run_has_left_is_ended(tmp_path: Path, ends: str) -> None:
    program(tmp_path / "bin" / "registry", "#!/bin/bash\nexec -a registry sleep 600\n")
    with subprocess.Popen([tmp_path / "bin" / "registry"]) as left:
        try:
            (tmp_path / "state").mkdir()
            until_it_is_one(left.pid)
            record = tmp_path / "state" / "registry-own.test:9.json"
            record.write_text(json.dumps({"pid": left.pid, "address": "127.0.0.1:9"}))
            text = "from tests.cluster import registry; registry.stop()"
            if ends == "the next run":
                program(tmp_path / "bin" / "registry", "#!/bin/bash\nexit 3\n")
                (tmp_path / "own").mkdir()
                started(tmp_path, OWN, str(tmp_path / "own"), "own.test:9")
            else:
                assert started(tmp_path, text).returncode == 0
            assert left.wait(timeout=10) == -9
            assert not record.exists()
        finally:
            left.kill()


def until_it_is_one(pid: int) -> None:
    wait_until(lambda: b"registry" in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0])
