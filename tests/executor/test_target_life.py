"""The life of a sandbox in a container: found by its mark, reset, resumed from a volume, ended with the container."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.executor.conftest import Enter, Start, needs_root
from tests.executor.container import NEEDS_RUNC
from tests.executor.driver import Command
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, needs_root, NEEDS_RUNC]


def test_what_a_generation_leaves_on_the_volume_is_deleted(container: Start, enter: Enter) -> None:
    box = container()
    driver = enter(box)
    store = box.directory / "store"
    for generation in (1, 2, 3):
        driver.run("mkdir -p /deep/er; echo x > /deep/er/file")
        assert (store / str(generation) / "upper/deep/er/file").exists()
        assert driver.ask("reset")["equal"]
    wait_until(lambda: [path.name for path in store.iterdir()] == ["4"])


def test_reset_network_and_the_volume(container: Start, enter: Enter) -> None:
    box = container()
    driver = enter(box)
    store = box.directory / "store"
    driver.run("echo dirt > /dirt; mkdir -p /deep/er; echo x > /deep/er/file")
    proof = driver.ask("reset", network="none")
    assert proof["equal"], proof
    assert driver.run("test -e /dirt")["exit_code"] == 1
    assert driver.run("tail -n +3 /proc/net/dev | cut -d: -f1").stdout.split() == [b"lo"]
    driver.run("echo kept > /kept")
    driver.ask("apply", network="full")
    assert driver.read("/kept") == b"kept\n"
    assert (
        box.exec("readlink", "/proc/self/ns/net") == driver.run("readlink /proc/self/ns/net").stdout.decode()
    )
    driver.ask("end")
    parts = {path.name for path in store.iterdir()}
    assert "2" in parts
    again = enter(box, root={"resume": True})
    assert again.read("/kept") == b"kept\n"
    again.ask("end")
    fresh = enter(box)
    assert fresh.run("test -e /kept")["exit_code"] == 1


def test_without_a_volume_changes_are_in_memory(container: Start, enter: Enter) -> None:
    box = container()
    driver = enter(box, root={"upper": "/proc/no/such"})
    assert driver.ready["overlay"]
    assert any("in memory" in note for note in driver.ready["notes"])
    driver.run("echo x > /here")
    assert driver.ask("reset")["equal"]


def test_the_end_of_the_container_is_told(container: Start, enter: Enter) -> None:
    box = container()
    driver = enter(box)
    box.kill()
    assert driver.wait_event()["event"] == "target_lost"


FIND = """
import sys
from sandlot_sidecar.executor import target
from sandlot_sidecar.executor.errors import SetupError
from sandlot_sidecar.executor.namespaces import Home
try:
    print(target.find(Home(), sys.argv[1], timeout=0.3))
except SetupError as error:
    print(error.message)
"""


def find(instance_id: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FIND, instance_id], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_container_is_found_by_its_mark(container: Start, enter: Enter) -> None:
    assert "SANDLOT_TARGET=i-nobody" in find("i-nobody")
    box = container()
    driver = enter(box)
    liar = driver.runner().start("echo up; read never", env={"SANDLOT_TARGET": box.id}, stdin=True)
    assert isinstance(liar, Command)
    liar.read_until(b"up")
    assert find(box.id) == str(box.pid)
    os.close(liar.stdin or -1)
    liar.stdin = None
    liar.wait()
