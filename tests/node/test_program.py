"""The agent as a program: killed and started again under its callers, stopped, with bad settings."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_node.containerd import mounts

from tests.cluster.relay import relay
from tests.node.private_containerd import NEEDS_CONTAINERD, Containerd, unmount_all
from tests.node.program import SLOW, Program
from tests.node.registries import OPEN, Layer, Registries, TestImage, tell_nodes
from tests.waiting import wait_until


@pytest.fixture
def program(daemon: Containerd, tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path, daemon.socket)
    try:
        program.start()
        yield program
    finally:
        program.clear()
        unmount_all(tmp_path)


pytestmark = NEEDS_CONTAINERD


def test_a_killed_agent_loses_nothing_that_slots_use(program: Program, registry: Registries) -> None:
    registry.push("used", TestImage(layers=[Layer(files={"name": b"used"})]))
    image = program.prepare(f"{OPEN}/used:1").json()
    program.call("POST", f"/v1/images/{image['id']}/uses", body={"slot": "slot-1"})
    rootfs = Path(image["rootfs"])
    program.end(signal.SIGKILL)
    assert (rootfs / "name").read_text() == "used", "slots go on without the agent"
    program.start()
    assert program.call("GET", f"/v1/images/{image['id']}").json() == {**image, "uses": ["slot-1"]}
    assert program.call("DELETE", f"/v1/images/{image['id']}").status_code == 409
    assert mounts.mounted_below(program.images) == {rootfs}


def test_an_agent_killed_in_a_pull_leaves_nothing_half(program: Program, registry: Registries) -> None:
    layers = [Layer(files={f"data-{number}": os.urandom(4 << 20)}) for number in range(4)]
    registry.push("cut", TestImage(layers=layers))
    with relay(f"127.0.0.1:{registry.port}", rate=2 << 20) as (slow, address):
        tell_nodes(registry.certs, SLOW, address)
        begun = program.call("POST", "/v1/images", body={"image": f"{SLOW}/cut:1"})
        assert begun.status_code == 202
        wait_until(lambda: slow.sent > 1 << 20, what="a part of the image is pulled")
        with slow.held():
            program.end(signal.SIGKILL)
    assert [path.name for path in program.images.iterdir()] == [".staging"]
    program.start()
    assert program.call("GET", "/v1/images").json() == {"images": []}
    image = program.prepare(f"{OPEN}/cut:1").json()
    assert image["status"] == "ready", image
    assert len(list(Path(image["rootfs"]).iterdir())) == 4


def test_a_stopped_agent_ends_with_0_and_leaves_its_images(program: Program, registry: Registries) -> None:
    registry.push("stopped", TestImage(layers=[Layer(files={"name": b"stopped"})]))
    rootfs = Path(program.prepare(f"{OPEN}/stopped:1").json()["rootfs"])
    assert program.end(signal.SIGTERM) == 0
    assert (rootfs / "name").read_text() == "stopped"


def test_uses_of_pods_that_do_not_run_are_dropped(
    program: Program, registry: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This containerd runs no pod at all."""
    registry.push("dropped", TestImage(layers=[Layer(files={"name": b"dropped"})]))
    image = program.prepare(f"{OPEN}/dropped:1").json()
    program.call("POST", f"/v1/images/{image['id']}/uses", body={"slot": "slot-1"})
    program.end(signal.SIGTERM)
    monkeypatch.setitem(program._environment, "SANDLOT_USE_GRACE", "0")
    monkeypatch.setitem(program._environment, "SANDLOT_HOUSEKEEPING", "0.1")
    program.start()
    path = f"/v1/images/{image['id']}"
    wait_until(lambda: program.call("GET", path).json()["uses"] == [], what="the use is dropped")
    assert program.call("DELETE", path).status_code == 204
