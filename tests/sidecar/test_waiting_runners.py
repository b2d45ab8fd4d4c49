"""How long a sandbox without an owner keeps a runner ready: for a moment, in which the next owner needs no fork."""

from __future__ import annotations

import pytest

from tests.sidecar.processes import name_of
from tests.sidecar.support import Sidecar
from tests.waiting import until_empty

pytestmark = pytest.mark.root
ROUNDS = 20


def runners(box: Sidecar) -> set[int]:
    return {pid for pid in box.tree() if name_of(pid) == "sandlot-runner"}


async def test_the_runner_of_a_reset_serves_an_owner_who_comes_at_once(make) -> None:
    """Of several owners at least one comes in time, also on a busy machine."""
    box = await make(claim={})
    for _ in range(ROUNDS):
        assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"] is True
        waiting = runners(box)
        await box.claim()
        assert (await box.exec("echo served"))["stdout"] == "served\n"
        if waiting and waiting <= runners(box):
            return
    pytest.fail("no runner of a reset has served the next owner")


async def test_a_sandbox_without_an_owner_keeps_no_runner(make) -> None:
    box = await make()
    await until_empty(lambda: runners(box))
    await box.claim()
    assert (await box.exec("echo one"))["stdout"] == "one\n"
    assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"] is True
    await until_empty(lambda: runners(box))
    await box.claim()
    assert (await box.exec("echo two"))["stdout"] == "two\n"


async def test_without_control_groups_an_owner_has_the_limits_of_the_claim(make) -> None:
    """There a runner has the limits that were in force at its fork."""
    box = await make(cgroup_parent=None)
    for size in (256 << 20, 128 << 20):
        await box.claim(limits={"memory": size})
        assert (await box.exec("ulimit -v", shell="sh"))["stdout"] == f"{size >> 10}\n"
        assert (await box.instance("POST", "/v1/reset", json={})).json()["equal"] is True
