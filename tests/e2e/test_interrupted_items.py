"""Items of `Sandbox.map` whose sandboxes are lost half-way go on from their last checkpoint, also in a later run of the batch."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from sandlot import Client, Sandbox, SandboxLost

from tests.e2e import processes
from tests.stack import Stack

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


class Batch:
    """Two steps for each item, with a checkpoint between them; the sidecars of all sandboxes are killed in the second."""

    def __init__(self, stack: Stack, client: Client, name: str, *, losses: int) -> None:
        self.stack, self.client, self.name, self.losses = stack, client, name, losses
        self.ran: list[str] = []

    def last(self, item: str) -> Mapping[str, object]:
        kept = Sandbox.find_checkpoints(f"{self.name}:{item}", client=self.client)
        self.ran.append(f"{item} from {len(kept)}")
        return {"checkpoint": kept[-1]} if kept else {}

    def work(self, box: Sandbox, item: str) -> str:
        if not box.files.exists("/work/first"):
            self.ran.append(f"{item} first")
            box.files.write("/work/first", f"first of {item}, ")
            box.checkpoint(name=f"{self.name}:{item}")
        if self.losses:
            self.losses -= 1
            for sidecar in processes.sidecars(self.stack):
                os.kill(sidecar, signal.SIGKILL)
        self.ran.append(f"{item} second")
        return box.exec("cat /work/first; echo second", check=True).stdout

    def forget(self, item: str) -> None:
        for made in Sandbox.find_checkpoints(f"{self.name}:{item}", client=self.client):
            Sandbox.delete_checkpoint(made.id, client=self.client)


@pytest.mark.parametrize("attempts", [2, 1], ids=["the same run", "a later run"])
def test_an_item_goes_on_from_its_checkpoint(stack: Stack, tmp_path: Path, attempts: int) -> None:
    with Client(url=stack.url, api_key=stack.api_key) as client:
        batch = Batch(stack, client, f"interrupted-{attempts}", losses=1)

        def run() -> list[str]:
            file = tmp_path / "results.jsonl"
            more = {"attempts": attempts, "resume": file, "create_for": batch.last, "concurrency": 1}
            return Sandbox.map(batch.work, ["a", "b"], client=client, **more)

        if attempts == 1:
            with pytest.raises(SandboxLost):
                run()
        assert run() == ["first of a, second\n", "first of b, second\n"]
        assert batch.ran == [
            *("a from 0", "a first", "a second"),
            *("a from 1", "a second"),
            *("b from 0", "b first", "b second"),
        ]
        for item in ("a", "b"):
            batch.forget(item)
