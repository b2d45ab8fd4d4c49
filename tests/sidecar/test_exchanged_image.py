"""A claim of a warm slot with an image exchanges the root only: what waits there serves the owner's first command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.executor.container import NEEDS_RUNC, NOT_ROOT, Container
from tests.executor.images import two_images
from tests.executor.test_ahead import name_of
from tests.sidecar.pod_sidecar import PodSidecar
from tests.sidecar.test_claim_image import broken, claimed, image_of, init_of
from tests.waiting import until

pytestmark = [pytest.mark.root, NEEDS_RUNC]


@pytest.fixture
def images() -> Iterator[Path]:
    with two_images() as found:
        yield found


@pytest_asyncio.fixture
async def slot(images: Path) -> AsyncIterator[PodSidecar]:
    """A warm sidecar beside a container that is not root's, whose claims may name images."""
    container = Container(user=NOT_ROOT)
    await asyncio.to_thread(container.start)
    try:
        box = PodSidecar(container)
        box.config["root"]["images"] = str(images)
        await box.start()
        yield box
        await box.close()
    finally:
        await asyncio.to_thread(container.close)


def runners(box: PodSidecar) -> set[int]:
    return {pid for pid in box.tree() if name_of(pid) == "sandlot-runner"}


def exchanges(box: PodSidecar) -> list[bool]:
    """Of each image that was laid, whether only the root was exchanged."""
    events = [json.loads(line) for line in box.log().splitlines() if line.startswith("{")]
    return [event["exchanged"] for event in events if event["event"] == "laid"]


async def test_the_runner_and_the_init_of_the_slot_stay(slot: PodSidecar, images: Path) -> None:
    await until(lambda: len(runners(slot)) == 1)
    for name, uid in (("one", "0"), ("two", "1234")):
        waiting, init = runners(slot), init_of(slot)
        await claimed(slot, image=image_of(images, name, user=int(uid), workdir="/etc", env={"OF": name}))
        assert await out(slot, "cat which; id -u; pwd; echo $OF") == [name, uid, "/etc", name]
        assert (runners(slot), init_of(slot)) == (waiting, init)
        assert (await slot.call("PUT", "/v1/files?path=/etc/new", content=b"x")).status_code == 200
        assert (await slot.instance("POST", "/v1/reset", json={})).json()["equal"]
        await until(lambda: '"event": "prepared"' in slot.log())
        await until(lambda: len(runners(slot)) == 2)  # one is the next generation's
        await claimed(slot, image=image_of(images, name))
        assert await out(slot, "cat /etc/which; ls /etc/new") == [name]
        assert (await slot.instance("POST", "/v1/reset", json={})).json()["equal"]
        await until(lambda: len(runners(slot)) == 2)
        # Else the next image would find the generation that is prepared for this one among the inits.
        await until(lambda: len(init_of(slot)) == 2)
    assert exchanges(slot) == [True, True]


async def out(box: PodSidecar, command: str) -> list[str]:
    return (await box.exec(command))["stdout"].split()


async def test_a_claim_at_once_after_a_reset_has_its_image(slot: PodSidecar, images: Path) -> None:
    for number in range(6):
        name = ("one", "two")[number % 2]
        await claimed(slot, image=image_of(images, name))
        assert await out(slot, "cat /etc/which; ls /etc/dirt; id -u") == [name, "0"]
        await slot.exec("echo dirt > /etc/dirt; sleep 5555 &")
        assert (await slot.instance("POST", "/v1/reset", json={})).json()["equal"]
    assert exchanges(slot) == [True] * 6


async def test_a_refused_claim_leaves_the_slot_usable(slot: PodSidecar, images: Path) -> None:
    for _ in range(2):
        answer = await slot.instance("POST", "/v1/claim", json=slot.claim_body(image=broken(images)))
        assert (answer.status_code, answer.json()["field"]) == (400, "image.lower"), answer.text
    await claimed(slot, image=image_of(images, "one"))
    assert await out(slot, "cat /etc/which") == ["one"]
    await slot.instance("POST", "/v1/reset", json={})
    policy = {"policy": {}, "allow": True, "rules": [["10.0.0.0/8"]]}  # not a rule
    body = slot.claim_body(image=image_of(images, "two"), egress=policy)
    assert (await slot.instance("POST", "/v1/claim", json=body)).status_code == 400
    await claimed(slot)
    assert await out(slot, "cat /etc/which") == ["one"]
    assert (await slot.instance("POST", "/v1/reset", json={})).json()["equal"]


async def test_a_restart_of_the_sidecar_keeps_owner_image_and_files(slot: PodSidecar, images: Path) -> None:
    await claimed(slot, image=image_of(images, "one"))
    await slot.exec("echo mine > /etc/mine")
    await slot.kill()
    await slot.start()
    assert await out(slot, "cat /etc/which /etc/mine; id -u") == ["one", "mine", "0"]
    assert exchanges(slot) == [True]
