"""Programs that fork without end: each ends in a verdict, and the sandbox can be used afterwards."""

from __future__ import annotations

import pytest

from tests.sidecar.calls import usable
from tests.sidecar.processes import descendants
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_a_fork_bomb_ends_in_a_verdict(box: Sidecar) -> None:
    answer = await box.call(
        "POST",
        "/v1/exec",
        json={"command": ":(){ :|:& };:; wait; while :; do :|:; done", "timeout": 3, "shell": "bash"},
    )
    assert answer.json()["verdict"] in ("timeout", "pids_limit")
    await until(lambda: calm(box))
    await usable(box)
    direct = await box.exec("python3 -c 'import os\nwhile True: os.fork()'", timeout=5)
    assert direct["verdict"] in ("pids_limit", "timeout")
    await until(lambda: calm(box))
    await usable(box)


async def test_a_bomb_that_starves_its_runner_is_dead_when_its_result_is_there(make) -> None:
    box = await make(limits={"cpu": 0.5, "memory": 1 << 30, "pids": 500}, claim={})
    answer = await box.exec(
        "python3 -c 'import os\nwhile True:\n try: os.fork()\n except OSError: pass'", timeout=2
    )
    assert answer["verdict"] == "timeout"
    assert await calm(box)
    await usable(box)


async def test_a_fork_bomb_in_the_background_is_defused_by_the_next_ops(box: Sidecar) -> None:
    bomb = await box.exec(":(){ :|:& };:", timeout=5, shell="bash")
    assert bomb["verdict"] in ("exited", "pids_limit", "timeout")

    async def calm_after_an_op() -> bool:
        await usable(box)
        return await calm(box)

    await until(calm_after_an_op)


async def calm(box: Sidecar) -> bool:
    return len(descendants(box.pid)) < 30
