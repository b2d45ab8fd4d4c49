"""The file work that the benchmarks time: that each part runs, and that a slot is compared with what it should be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtests.cluster.file_rows import plain_pod
from loadtests.cluster.slot_file_rows import PARTS, check_slot, measured
from loadtests.local.file_rows import PROGRAM, ROUNDS, Seconds

IMAGE = "registry.example/file-work:1"
LIMITS = {"limits": {"cpu": "2", "memory": "4Gi"}}


def sandbox_pod(*, image: str, **spec: Any) -> dict[str, Any]:
    containers = [
        {"name": "sidecar", "image": "sidecar", "resources": {}},
        {"name": "sandbox", "image": image, "resources": LIMITS},
    ]
    return {"spec": {"nodeName": "node-7", "containers": containers, **spec}}


class Side:
    """One side of the comparison: each round it takes `seconds` for each part, and sees `files`."""

    def __init__(self, name: str, seconds: float, *, files: list[int], order: list[str]) -> None:
        self._name = name
        self._seconds = seconds
        self._files = iter(files)
        self._order = order

    async def __call__(self) -> Seconds:
        self._order.append(self._name)
        return {**dict.fromkeys(PARTS, self._seconds), "files": float(next(self._files))}


async def compared(*, ours: list[int], theirs: list[int]) -> tuple[dict[str, float], list[str]]:
    order: list[str] = []
    found = await measured(
        "runc",
        in_slot=Side("slot", 0.6, files=ours, order=order),
        in_container=Side("container", 0.5, files=theirs, order=order),
    )
    return {name: reading.value for name, reading in found.items()}, order


def test_work_on_an_image_s_files_leaves_them_and_its_folder_as_they_were(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "work"
    (root / "lib").mkdir(parents=True)
    for number in range(50):
        (root / "lib" / f"module_{number}.py").write_text(f"VALUE = {number}\n")
    (root / ".gitignore").write_text("*.pyc\n")
    (root / "lib" / "old.pyc").write_bytes(b"what the image's own history ignores")
    (root / "link").symlink_to("lib")
    before = sorted(path.relative_to(root) for path in root.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, root], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found.keys() == {*PARTS, "files"}
    assert found["files"] == len(before) + 1  # the root itself
    assert all(found[part] > 0 for part in PARTS)
    assert sorted(path.relative_to(root) for path in root.rglob("*")) == before
    assert not folder.exists()


async def test_a_slot_is_compared_with_a_container_in_turn() -> None:
    values, order = await compared(ours=[9] * ROUNDS, theirs=[9] * ROUNDS)
    assert values == {f"slot_files_{part}_runc": pytest.approx(1.2) for part in PARTS}
    assert order == ["container", "slot"] * ROUNDS


async def test_different_files_do_not_compare() -> None:
    with pytest.raises(RuntimeError, match=r"/usr has .* in the slot and .* in the container"):
        await compared(ours=[9] * (ROUNDS - 1) + [8], theirs=[9] * ROUNDS)


def test_only_a_warm_slot_that_was_given_its_image_counts() -> None:
    check_slot(sandbox_pod(image="slot"), image=IMAGE, warm=True)
    with pytest.raises(RuntimeError, match="started with this image from its start, not in a slot"):
        check_slot(sandbox_pod(image=IMAGE), image=IMAGE, warm=True)
    with pytest.raises(RuntimeError, match="started for this create, not in a slot"):
        check_slot(sandbox_pod(image="slot"), image=IMAGE, warm=False)


@pytest.mark.parametrize("more", [{}, {"runtimeClassName": "gvisor"}], ids=["runc", "gvisor"])
def test_the_container_has_the_sandbox_s_node_runtime_and_resources(more: dict[str, str]) -> None:
    spec = plain_pod(sandbox_pod(image="slot", **more), image=IMAGE)["spec"]
    assert spec["nodeName"] == "node-7"
    assert spec.get("runtimeClassName") == more.get("runtimeClassName")
    (container,) = spec["containers"]
    assert container["image"] == IMAGE
    assert container["imagePullPolicy"] == "Never", "the layers that the slot has"
    assert container["resources"] == LIMITS
