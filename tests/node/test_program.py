"""The agent as a program: killed and started again under its callers, stopped, with bad settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sandlot_node.containerd import mounts

from tests import plain_http
from tests.cluster.relay import relay
from tests.node.private_containerd import NEEDS_CONTAINERD, Containerd, unmount_all
from tests.node.registries import OPEN, Layer, Registries, TestImage, tell_nodes
from tests.ports import free_port
from tests.waiting import SECONDS, wait_until

TOKEN = "a token of the tests"
SLOW = "slow.example"  # the open registry behind a relay


class Program:
    """`python -m sandlot_node` on a containerd, with its directories in `directory`."""

    def __init__(self, directory: Path, daemon: Containerd) -> None:
        self.images = directory / "images"
        self.images.mkdir()
        self.url = f"http://127.0.0.1:{free_port()}"
        (directory / "token").write_text(f"{TOKEN}\n")
        self._log = directory / "agent.log"
        self._environment = {
            "PATH": os.environ["PATH"],
            "SANDLOT_TOKEN_FILE": str(directory / "token"),
            "SANDLOT_CONTAINERD": str(daemon.socket),
            "SANDLOT_IMAGES": str(self.images),
            "SANDLOT_STATE": str(directory / "state"),
            "SANDLOT_REGISTRIES": f'["{OPEN}", "{SLOW}"]',
            "SANDLOT_MIN_FREE": "0",
            "SANDLOT_HOST": "127.0.0.1",
            "SANDLOT_PORT": self.url.rpartition(":")[2],
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sandlot_node"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, what=str(self._log))

    def _answers(self) -> bool:
        try:
            return plain_http.get(f"{self.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def call(self, method: str, path: str, *, body: dict[str, str] | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return plain_http.request(method, f"{self.url}{path}", headers=headers, timeout=60, json=body)

    def prepare(self, image: str) -> httpx.Response:
        return self.call("POST", "/v1/images?wait=30", body={"image": image})

    def end(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(SECONDS)
        self._process = None
        return code

    def clear(self) -> None:
        if self._process is None:
            self.start()
        for image in self.call("GET", "/v1/images").json()["images"]:
            for slot in image["uses"]:
                self.call("DELETE", f"/v1/images/{image['id']}/uses/{slot}")
            self.call("DELETE", f"/v1/images/{image['id']}")
        self.end(signal.SIGKILL)


@pytest.fixture
def program(daemon: Containerd, tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path, daemon)
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
