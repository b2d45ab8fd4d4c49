"""What user code and tenants can make the gateway do by watches is bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_gateway.e2b.failures import EnvdFailure
from sandlot_gateway.e2b.watch_room import Pace, WatchRoom

from tests.e2b.conftest import Box

IDS = [SandboxId(f"sb-{number:020x}") for number in range(6)]


def test_a_tenants_watches_are_counted_over_its_sandboxes() -> None:
    room = WatchRoom()
    for number in range(64):
        room.take("one", IDS[number % 5])
    for tenant, sandbox_id in (("one", IDS[5]), ("one", IDS[0])):
        with pytest.raises(EnvdFailure, match="watchers"):
            room.take(tenant, sandbox_id)
    room.take("other", IDS[5])
    room.leave("one", IDS[0])
    room.take("one", IDS[5])


def test_a_slow_look_is_followed_by_a_long_pause() -> None:
    pace = Pace()
    assert pace.pause(took=0.001, changed=True) == 0.25
    assert pace.pause(took=1.0, changed=True) == 15.0
    assert [pace.pause(took=0.0, changed=False) for _ in range(8)][-1] == 2.0


@pytest.mark.root
def test_creates_at_once_do_not_exceed_the_room(box: Box) -> None:
    with ThreadPoolExecutor(24) as threads:
        asked = [
            threads.submit(box.rpc, "filesystem.Filesystem/CreateWatcher", {"path": "/tmp"})
            for _ in range(24)
        ]
    answers = [each.result() for each in asked]
    assert sorted(each.status_code for each in answers) == [200] * 16 + [429] * 8
    for each in answers:
        if each.status_code == 200:
            box.rpc("filesystem.Filesystem/RemoveWatcher", {"watcherId": each.json()["watcherId"]})
    assert box.rpc("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}).status_code == 200


@pytest.mark.root
@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("i=0; while [ $i -lt 510 ]; do echo d$i; i=$((i+1)); done | xargs mkdir", "500 directories"),
        ("i=1000; while [ $i -lt 2100 ]; do printf '%0250d\\n' $i; i=$((i+1)); done | xargs touch", "characters"),
    ],
)  # fmt: skip
def test_a_look_that_costs_much_is_refused(made: str, why: str, box: Box) -> None:
    box.run(f"rm -rf /tmp/many; mkdir /tmp/many; cd /tmp/many; {made}")
    answer = box.rpc("filesystem.Filesystem/CreateWatcher", {"path": "/tmp/many", "recursive": True})
    assert (answer.status_code, answer.json()["code"]) == (429, "resource_exhausted")
    assert why in answer.json()["message"]
