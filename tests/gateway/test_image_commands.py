"""The start command and stop signal that a create takes from its image, and what it may ask for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_gateway.core.claim_images import joined_command
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.core.supply_events import StartFailed
from sandlot_gateway.sandboxes import recovered

from tests.gateway.conftest import Running
from tests.gateway.machine import Machine
from tests.gateway.replica import TOKENS, new_sandbox
from tests.gateway.sidecars import sidecars
from tests.gateway.test_claim_images import Images, own, prepared
from tests.gateway.warm_pool import warmed

WORDS = st.lists(st.text(), max_size=3)


def of_image(*command: str, stop_signal: str = "") -> Images:
    images = Images(prepared)
    images.command, images.stop_signal = command, stop_signal
    return images


@given(WORDS, WORDS)
def test_entrypoint_and_cmd_are_one_argv(entrypoint: list[str], cmd: list[str]) -> None:
    expected = cmd if entrypoint == [""] else entrypoint + cmd
    assert list(joined_command(entrypoint, cmd)) == expected


async def test_a_claim_starts_the_command_of_its_image(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        sandbox = new_sandbox(run_image_command=True)
        await replica(sidecar, images=of_image("/init", "--serve", stop_signal="SIGQUIT")).claim(sandbox)
        assert sidecar.claim is not None
        assert sidecar.claim["start_command"] == ["/init", "--serve"]
        assert (sidecar.claim["stop_signal"], sidecar.claim["stop_grace"]) == (3, None)
        state = {
            "meta": sidecar.claim["meta"],
            "sandbox_id": sandbox.id,
            "instance_id": sidecar.instance_id,
        }
        assert recovered(state, now=0.0).spec.start_command == ["/init", "--serve"]


async def test_only_a_create_that_asks_for_it_does(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        await replica(sidecar, images=of_image("/init")).claim(new_sandbox())
        assert sidecar.claim is not None
        assert sidecar.claim["start_command"] is None


@pytest.mark.parametrize(
    ("of_the_image", "own_signal", "claimed"),
    [("SIGRTMIN+3", None, 37), ("", None, None), ("NOPE", None, None), ("SIGQUIT", 2, 2), ("", 2, 2)],
)
async def test_the_stop_signal_is_the_creates_or_the_images(
    replica, machine: Machine, of_the_image: str, own_signal: int | None, claimed: int | None
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        sandbox = new_sandbox(start_command="serve", stop_signal=own_signal, stop_grace=2.5)
        await replica(sidecar, images=of_image(stop_signal=of_the_image)).claim(sandbox)
        assert sidecar.claim is not None
        assert (sidecar.claim["stop_signal"], sidecar.claim["stop_grace"]) == (claimed, 2.5)
        assert sidecar.claim["start_command"] == "serve"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ((), "the image 'host' has neither ENTRYPOINT nor CMD: set start_command instead"),
        (("", "x"), "has neither ENTRYPOINT nor CMD"),
        (None, "an earlier version unpacked the image 'host'"),
        (("a\0b",), "has a NUL byte or is no valid text"),
        (("\udfff",), "has a NUL byte or is no valid text"),
        ("own", "this pod keeps the image"),
    ],
)
async def test_an_image_without_one_fails_the_create_and_no_instance(
    replica, machine: Machine, command: Any, why: str
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        images = Images(own if command == "own" else prepared)
        images.command = command
        one = replica(sidecar, images=images)
        with pytest.raises(StartFailed, match=why) as caught:
            await one.claim(new_sandbox(run_image_command=True))
        assert caught.value.field == "run_image_command"
        assert sidecar.claims_seen == 0
        assert one.phase(sidecar) is Phase.WARM
        assert len(images.unlaid) == (command != "own")


@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        ({"run_image_command": True, "start_command": "x"}, "run_image_command", "start_command is set, too"),
        ({"run_image_command": True}, "run_image_command", "slots.enabled in the chart"),
        ({"run_image_command": 1}, "run_image_command", ""),
        ({"stop_signal": "SIGNOPE"}, "stop_signal", "such as SIGTERM, 15 or SIGRTMIN+3"),
        ({"stop_signal": 0}, "stop_signal", "from 1 to 64"),
        ({"stop_signal": True}, "stop_signal", ""),
        ({"stop_signal": 15.5}, "stop_signal", ""),
        ({"stop_grace_seconds": 5.5}, "stop_grace_seconds", ""),
        ({"stop_grace_seconds": -1}, "stop_grace_seconds", ""),
    ],
)
async def test_a_create_names_the_field(box: Running, fields: dict[str, Any], param: str, why: str) -> None:
    answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host", **fields})
    assert answer.status_code == 422
    errors = answer.json()["errors"]
    assert {error["param"].split(".")[0] for error in errors} == {param}
    assert why in errors[0]["details"]


async def test_a_whole_number_of_a_stop_signal_may_be_a_float(box: Running) -> None:
    await warmed(box)
    await box.create(stop_signal=15.0)
    (claimed,) = box.machine.claimed()
    assert claimed.claim is not None
    assert claimed.claim["stop_signal"] == 15


async def test_a_creates_own_fields_reach_the_claim(box: Running) -> None:
    await warmed(box)
    await box.create(start_command="", run_image_command=False, stop_signal="rtmin+1", stop_grace_seconds=0)
    (claimed,) = box.machine.claimed()
    claim = claimed.claim
    assert claim is not None
    assert (claim["stop_signal"], claim["stop_grace"], claim["start_command"]) == (35, 0, None)
