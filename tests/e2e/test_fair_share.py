"""Two runs of weights 3 and 1 that share one slot of the local backend: the machine's only GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sandlot import Client, Run, Sandbox, SandboxInfo

from tests.cli.conftest import environment
from tests.local.conftest import NEEDS_ROOT
from tests.local.gpu_machine import H100, gpu_machine
from tests.stack import private_stack
from tests.waiting import SECONDS, wait_until

pytestmark = NEEDS_ROOT

RUNS = {"light": 4, "heavy": 6}  # creates of each, more than are served


@pytest.mark.parametrize("priority", [-101, 101, 1.5, True, "1"])
def test_a_priority_that_is_none_is_refused_before_a_request(priority: Any) -> None:
    with pytest.raises(ValueError, match="priority: must be a whole number from -100 to 100, not"):
        Run("r", priority=priority)


def test_runs_are_served_by_weight_and_see_place_and_wait(tmp_path: Path) -> None:
    root = gpu_machine(tmp_path / "gpus", H100)
    with (
        private_stack("--gpu-root", str(root)) as stack,
        Client(url=stack.url, api_key=stack.api_key) as client,
        Run("light", client=client),
        Run("heavy", weight=3, client=client) as heavy,
    ):
        assert heavy.info.weight == 3
        holder = Sandbox.create(client=client, gpu_count=1, run_id="")
        for run, count in RUNS.items():
            body = {"docker_image": "host", "gpu_count": 1, "run_id": run, "wait_seconds": 0}
            for _ in range(count):
                client.call("POST", "/sandbox", body=body)

        def infos(status: str) -> list[SandboxInfo]:
            found = Sandbox.list(client=client)  # one request: places of two are not of one time
            return [info for info in found if info.run in RUNS and info.status == status]

        assert sorted(info.queue_position or 0 for info in infos("PENDING")) == list(range(1, 11))
        assert {info.estimated_wait for info in infos("PENDING")} == {None}, "none was served yet"
        holder.delete()
        served: list[str] = []
        for _ in range(5):
            [info] = wait_until(lambda: infos("RUNNING"))
            served.append(info.run or "")
            Sandbox.delete_many([info.id], client=client)
        assert Counter(served[:4]) == {"heavy": 3, "light": 1}

        def waiting() -> list[tuple[int, float, str, str]]:
            """Return place, estimate, id and run of each that waits; a create that has the slot is PENDING without."""
            return sorted(
                (info.queue_position, info.estimated_wait, info.id, info.run or "")
                for info in infos("PENDING")
                if info.queue_position is not None and info.estimated_wait is not None
            )

        (_, soonest, *_), *_, (_, latest, last, run) = wait_until(waiting)
        assert latest > soonest > 0
        shown = subprocess.run(
            [sys.executable, "-m", "sandlot", "ps", "--run", run],
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
            env=environment(stack.url, stack.api_key, tmp_path),
        ).stdout
        assert re.search(rf"{last} .* PENDING \(place \d+, about \d+ s\)", shown), shown
