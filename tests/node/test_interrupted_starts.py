"""containerd goes away while an agent starts, at each call that the agent makes, or for one image only."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from sandlot_node.containerd.client import CallFailed, Client
from sandlot_node.containerd.registry import Registry
from sandlot_node.failures import ImageError, Kind
from sandlot_node.images import Image, SlotId

from tests.node.agents import Node, preparer_of, ready
from tests.node.private_containerd import NEEDS_CONTAINERD, unmount_all
from tests.node.registries import OPEN, Layer, Registries, TestImage

pytestmark = NEEDS_CONTAINERD

AWAY = ImageError(Kind.UNAVAILABLE, "containerd did not answer at /run/containerd.sock")


class Interrupted(Client):
    """A client whose containerd is away from some call on, until `failing` is False."""

    def __init__(self, socket: str) -> None:
        super().__init__(socket)
        self.calls = 0
        self.last = 0
        self.failing = False
        self.hangs = False

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        self.calls += 1
        if self.failing and self.calls > self.last:
            if self.hangs:
                raise CallFailed(method, grpc.StatusCode.DEADLINE_EXCEEDED.name, "too slow")
            raise AWAY
        return await super().call(method, *args, **options)


class OneUnserved(Client):
    """A client whose containerd serves no view over one chain of layers: a lazy snapshotter asks that registry."""

    unserved: str | None = None
    hangs = False

    async def call(self, method: str, request: Any, *args: Any, **options: Any) -> Any:
        if method.endswith("/View") and request.parent == self.unserved:
            if self.hangs:
                raise CallFailed(method, grpc.StatusCode.DEADLINE_EXCEEDED.name, "too slow")
            raise AWAY
        return await super().call(method, request, *args, **options)


@pytest.mark.parametrize("hangs", [False, True])
async def test_an_image_whose_layers_are_away_keeps_no_other_from_being_adopted(
    node: Node, registry: Registries, hangs: bool
) -> None:
    real = node.client
    client = node.client = OneUnserved(str(node.daemon.socket))
    client.hangs = hangs
    try:
        agent = await node.agent()
        images: list[Image] = []
        for name in ("unserved", "served"):
            registry.push(name, TestImage(layers=[Layer(files={"name": name.encode()})]))
            images.append(await ready(agent, f"{OPEN}/{name}:1"))
        status = await Registry(client, pull_seconds=60.0).status(images[0].id)
        assert status is not None
        unmount_all(node.images)
        client.unserved = status.chain
        again = await node.agent()
        assert [image.id for image in again.images()] == [images[1].id]
        client.unserved = None
        unmount_all(node.images)
        last = await node.agent()
        assert {image.id for image in last.images()} == {image.id for image in images}
        assert len(node.daemon.listed("leases")) == 2
    finally:
        node.client = real
        await client.close()


@pytest.mark.parametrize("rebooted", [False, True])
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_containerd_that_goes_away_while_an_agent_starts_loses_no_image(
    node: Node, registry: Registries, rebooted: bool, hangs: bool
) -> None:
    agent = await node.agent()
    images: list[Image] = []
    for name in ("first", "second"):
        registry.push(name, TestImage(layers=[Layer(files={"name": name.encode()})]))
        images.append(await ready(agent, f"{OPEN}/{name}:1"))
        agent.use(images[-1].id, SlotId(f"slot-{name}"))
    real = node.client
    client = node.client = Interrupted(str(node.daemon.socket))
    client.hangs = hangs
    calls = 0
    try:
        while True:
            if rebooted:
                unmount_all(node.images)
            client.calls, client.last, client.failing = 0, calls, True
            starting = preparer_of(node.engine(), node.state)
            try:
                await starting.start()
                break
            except ImageError as error:
                assert error.kind is Kind.UNAVAILABLE, (calls, error)
            client.failing = False
            await starting.start()
            assert {image.id for image in starting.images()} == {image.id for image in images}, calls
            assert [len(starting.ledger.entries[image.id].uses) for image in images] == [1, 1], calls
            assert [(image.rootfs / "name").exists() for image in starting.images()] == [True, True]
            calls += 1
        assert calls > 10
        assert len(starting.images()) == 2
        if (
            not hangs
        ):  # else the last call may be a deletion, which a real containerd carries out all the same
            assert len(node.daemon.listed("leases")) == 2
    finally:
        node.client = real
        await client.close()
