"""Gateways around real sidecars in one directory, with a look at what they left on the machine; a store of images."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.clean import clean
from sandlot_gateway.backends.local.images import ImageStore

from tests.waiting import wait_until_empty

from .gateway import Gateway

CGROUPS = Path("/sys/fs/cgroup")
SMALL = Template("host", cpu=1.0, memory=256 << 20, pids=64)
NEEDS_ROOT = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces and cgroups"),
]


class Machine:
    """One state directory; `gateway()` is its next gateway. At the end nothing of it may be left."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state_dir = directory / "state"
        self.gateways: list[Gateway] = []

    def gateway(self, **settings: Any) -> Gateway:
        gateway = Gateway(self.directory, **settings)
        self.gateways.append(gateway)
        return gateway

    def instance_ids(self) -> set[str]:
        ids: set[str] = set()
        for gateway in self.gateways:
            ids.update(gateway.found, gateway.lost, gateway.ended, gateway.ready_at)
        return ids

    def processes(self) -> list[int]:
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                arguments = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(self.state_dir) in arguments and int(name) != os.getpid():
                found.append(int(name))
        return found

    def cgroups(self, instance_id: str) -> list[Path]:
        group = f"sandlot/{instance_id}"  # below v2's one hierarchy, or each of v1
        return [path for path in [CGROUPS / group, *CGROUPS.glob(f"*/{group}")] if path.is_dir()]

    def left(self) -> list[str]:
        lines = [f"process {pid}" for pid in self.processes()]
        lines += [f"cgroup {path}" for item in self.instance_ids() for path in self.cgroups(item)]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        lines += [f"mount {line}" for line in mounts if str(self.directory) in line]
        instances = self.state_dir / "instances"
        lines += [f"directory {path}" for path in (instances.iterdir() if instances.exists() else ())]
        return lines


@pytest.fixture(scope="session")
def cache_dir() -> Iterator[Path]:
    """Byte code and images of all tests: compiled once."""
    directory = Path(tempfile.mkdtemp(prefix="sandlot-cache-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def machine(cache_dir: Path) -> Iterator[Machine]:
    # Not tmp_path: a socket's path has room for 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="sandlot-"))
    (directory / "cache").symlink_to(cache_dir)
    machine = Machine(directory)
    try:
        yield machine
        # What an instance that has ended by itself held is removed a moment after its end is told.
        wait_until_empty(machine.left)
    finally:
        clean(machine.state_dir, force=True)
        shutil.rmtree(directory)


def pid_of(machine: Machine, instance_id: str) -> int:
    record = json.loads((machine.state_dir / "instances" / instance_id / "instance.json").read_bytes())
    return int(record["process"]["pid"])


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ImageStore]:
    directory = tmp_path / "cache"
    directory.mkdir()
    images = ImageStore(directory)
    images.open()
    yield images
    await images.close(timeout=60)
    assert [path.name for path in directory.iterdir() if path.name.startswith((".new-", "ref-"))] == []


async def root_of(store: ImageStore, path: Path) -> Path:
    """Where the store has unpacked the image."""
    return Path((await store.prepare(str(path))).lower[0])
