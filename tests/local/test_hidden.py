"""Secrets of this gateway, and of other stacks on the machine, are not in a sandbox of the host's root."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.hidden import (
    Hidden,
    running_state_dirs,
    usual_state_dirs,
    without_links,
)

from tests.local.conftest import Machine

INSTANCE = "i-0123456789abcdef"


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that sandboxes of the host's root do see, unlike those below /tmp."""
    directory = Path(tempfile.mkdtemp(prefix="sandlot-test-", dir="/opt"))
    yield directory
    shutil.rmtree(directory)


def state_dir(path: Path) -> Path:
    (path / "instances" / INSTANCE).mkdir(parents=True)
    (path / "lock").touch()
    return path


def process(proc: Path, pid: int, *, namespace: str, arguments: list[str]) -> None:
    """A process as /proc shows it, in a pid namespace of that name."""
    (proc / str(pid) / "ns").mkdir(parents=True)
    (proc / str(pid) / "ns" / "pid").symlink_to(namespace)
    (proc / str(pid) / "cmdline").write_bytes(b"\0".join(map(os.fsencode, arguments)) + b"\0")


def test_stacks_are_found_by_their_processes_and_code_in_a_sandbox_is_not_believed(tmp_path: Path) -> None:
    first, second, third = (state_dir(tmp_path / name) for name in ("first", "second", "third"))
    (tmp_path / "no-state" / "instances").mkdir(parents=True)
    proc = tmp_path / "proc"
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[1]")
    sidecar = ["python", "-m", "sandlot_sidecar", "--config"]
    gateway = ["python", "-m", "sandlot_gateway"]
    process(
        proc,
        10,
        namespace="pid:[1]",
        arguments=[*sidecar, str(first / "instances" / INSTANCE / "config.json")],
    )
    process(proc, 11, namespace="pid:[1]", arguments=[*gateway, "--state-dir", str(second)])
    process(proc, 12, namespace="pid:[2]", arguments=[*gateway, f"--state-dir={third}"])
    process(proc, 13, namespace="pid:[1]", arguments=[*gateway, f"--state-dir={tmp_path / 'no-state'}"])
    process(proc, 14, namespace="pid:[1]", arguments=["vi", "--state-dir", str(third)])
    assert running_state_dirs(proc) == [first, second]
    (proc / "12" / "ns" / "pid").unlink()
    (proc / "12" / "ns" / "pid").symlink_to("pid:[1]")
    assert running_state_dirs(proc) == [first, second, third]


def test_a_link_is_hidden_with_what_it_points_at(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "below").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(real)
    assert without_links([link, real / "below"]) == (str(link), str(real))


def test_the_usual_places_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SANDLOT_HOME", str(tmp_path / "home"))
    usual = tmp_path / ".local" / "state" / "sandlot"
    assert not {usual, tmp_path / "home"} & set(usual_state_dirs())
    usual.mkdir(parents=True)
    (tmp_path / "home").mkdir()
    assert {usual, tmp_path / "home"} <= set(usual_state_dirs())
    assert str(usual) in Hidden(own=()).paths()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces and cgroups")
async def test_a_sandbox_of_the_host_sees_no_secret(machine: Machine, outside: Path) -> None:
    real, link = outside / "keys-1", outside / "keys"
    real.write_text("secret-key:tenant")
    link.symlink_to(real)
    (outside / "other.txt").write_text("seen\n")
    another = state_dir(outside / "another")
    (another / "key").write_text("secret-key")
    # A process that stands for the other stack's gateway: it waits for the end of its input.
    command = [sys.executable, "-c", "input()", "sandlot_gateway", "--state-dir", str(another)]
    stranger = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    async with machine.gateway(secret_paths=[link]) as gateway:
        instance = await gateway.backend.launch(Template("host"))
        await gateway.until_ready(instance)
        token = await gateway.claim(instance)
        result = await gateway.run(
            instance,
            token,
            f"cat {outside}/other.txt; cat {link} {real} {another}/key; ls {machine.state_dir}",
        )
        assert result["stdout"] == "seen\n"
        found = await gateway.run(instance, token, f"grep -rl secret-key {outside}; ls -A {outside}")
        assert found["stdout"] == "other.txt\n"
        await gateway.backend.destroy_all(timeout=60)
    await stranger.communicate(b"")
