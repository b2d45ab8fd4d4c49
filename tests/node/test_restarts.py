"""What agent, containerd and node leave to each other when one of them ends: nothing lost, nothing mounted twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_node.containerd import mounts
from sandlot_node.containerd.client import Client
from sandlot_node.failures import ImageError, Kind
from sandlot_node.images import SlotId
from sandlot_node.preparer import Preparer

from tests.node.agents import Node, ready
from tests.node.private_containerd import NEEDS_CONTAINERD, Containerd, containerd, unmount_all
from tests.node.registries import OPEN, Layer, Registries, TestImage
from tests.waiting import until

pytestmark = NEEDS_CONTAINERD


def push(registry: Registries, name: str) -> str:
    registry.push(name, TestImage(layers=[Layer(files={"name": name.encode()}), Layer(files={"two": b"2"})]))
    return f"{OPEN}/{name}:1"


async def test_an_agent_adopts_what_a_killed_one_prepared(node: Node, registry: Registries) -> None:
    first = await node.agent()
    found = await ready(first, push(registry, "adopted"))
    first.use(found.id, SlotId("slot"))
    before = (
        mounts.mounted_below(node.images),
        node.daemon.listed("leases"),
        node.daemon.listed("snapshots"),
    )
    second = await node.agent()
    assert [(one.id, one.rootfs, one.config, one.parts) for one in second.images()] == [
        (found.id, found.rootfs, found.config, found.parts)
    ]
    assert second.ledger.entries[found.id].uses.keys() == {"slot"}
    assert (await ready(second, f"{OPEN}/adopted:1")).rootfs == found.rootfs
    after = (mounts.mounted_below(node.images), node.daemon.listed("leases"), node.daemon.listed("snapshots"))
    assert after == before


async def test_an_image_that_containerd_was_told_to_forget_is_adopted(
    node: Node, registry: Registries
) -> None:
    reference = push(registry, "forgotten")
    found = await ready(await node.agent(), reference)
    node.daemon.ctr("images", "rm", "--sync", reference, found.id, *found.digests)
    second = await node.agent()
    assert [one.rootfs for one in second.images()] == [found.rootfs]
    assert (found.rootfs / "name").read_text() == "forgotten"
    assert second.image(found.id).config == found.config


async def test_after_the_nodes_restart_images_are_mounted_again(node: Node, registry: Registries) -> None:
    found = await ready(await node.agent(), push(registry, "rebooted"))
    lost = await ready(await node.agent(), push(registry, "lost"))
    unmount_all(node.images)
    node.daemon.ctr("images", "rm", "--sync", f"{OPEN}/lost:1", lost.id, *lost.digests)
    agent = await node.agent()
    assert [one.id for one in agent.images()] == [found.id], "the other is absent, not empty"
    again = agent.image(found.id)
    assert again.rootfs != found.rootfs
    assert (again.rootfs / "name").read_text() == "rebooted"
    assert {path.name for path in node.images.iterdir()} == {".staging", again.rootfs.parent.name}
    assert len(mounts.mounted_below(node.images)) == 1
    assert len([name for name in node.daemon.listed("leases") if name.startswith("sha256-")]) == 1


async def test_what_was_half_done_is_removed(node: Node, registry: Registries) -> None:
    found = await ready(await node.agent(), push(registry, "whole"))
    for name in (".staging/sha256-0.1", "sha256-0.2"):
        (node.images / name / "rootfs").mkdir(parents=True)
        (node.images / name / "image.json").write_text("{}")
        wanted = mounts.Mount("bind", str(node.daemon.directory), ("ro", "rbind"))
        mounts.mount([wanted], node.images / name / "rootfs")
    # A lease whose directory was never made, and the lease of a pull.
    # The id is whole, since containerd takes the beginning of one for the image that it begins.
    node.daemon.ctr("leases", "create", "--id", "sha256-0.3", f"sandlot.dev/image=sha256:{0:064x}")
    node.daemon.ctr("leases", "create", "--id", "sandlot-pull-0", "sandlot.dev/pull=true")
    agent = await node.agent()
    assert [one.rootfs for one in agent.images()] == [found.rootfs]
    assert mounts.mounted_below(node.images) == {found.rootfs}
    assert {path.name for path in node.images.iterdir()} == {".staging", found.rootfs.parent.name}
    assert not list((node.images / ".staging").iterdir())
    assert node.daemon.listed("leases") == {found.rootfs.parent.name}
    assert (node.daemon.directory / "config.toml").exists(), "nothing was removed through a mount"


async def answers(agent: Preparer) -> bool:
    try:
        return await agent.free() > 0
    except ImageError:
        return False


@pytest.fixture
def own(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, registry: Registries
) -> Iterator[Containerd]:
    """A containerd of the test's own, to be killed."""
    with containerd(tmp_path_factory.mktemp("k"), certs=registry.certs) as found:
        yield found


async def test_images_outlive_containerd(own: Containerd, tmp_path: Path, registry: Registries) -> None:
    client = Client(str(own.socket))
    node = Node(client, own, images=tmp_path / "images", state=tmp_path / "state")
    node.images.mkdir()
    try:
        agent = await node.agent()
        found = await ready(agent, push(registry, "outlives"))
        own.kill()
        assert (found.rootfs / "name").read_text() == "outlives"
        assert await ready(agent, f"{OPEN}/outlives:1") == found, "it is here, and was proven a moment ago"
        with pytest.raises(ImageError) as caught:
            await ready(agent, push(registry, "later"))
        assert caught.value.kind is Kind.UNAVAILABLE
        assert "containerd did not answer" in caught.value.message
        with pytest.raises(ImageError) as caught:
            await agent.housekeep()
        assert caught.value.kind is Kind.UNAVAILABLE
        # Released while containerd is away: the files go, the layers when it is back.
        await agent.delete(found.id)
        assert not mounts.mounted_below(node.images)
        own.start()
        await until(lambda: answers(agent), what="the agent is connected again")
        later = await ready(agent, f"{OPEN}/later:1")
        assert (later.rootfs / "name").read_text() == "later"
        assert own.listed("leases") == {later.rootfs.parent.name}
        assert found.id not in own.listed("images")
        assert await agent.housekeep() is None
        await node.clear()
        assert not own.listed("leases")
    finally:
        await client.close()
        unmount_all(tmp_path)


async def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, registry: Registries
) -> None:
    directory = tmp_path_factory.mktemp("f")
    (directory / "root").mkdir()
    mounts._mount("tmpfs", directory / "root", "tmpfs", 0, "size=24m")
    (tmp_path / "images").mkdir()
    registry.push("huge", TestImage(layers=[Layer(files={"data": bytes(64 << 20)})]))
    try:
        with containerd(directory, certs=registry.certs) as daemon:
            client = Client(str(daemon.socket))
            node = Node(client, daemon, images=tmp_path / "images", state=tmp_path / "state")
            agent = await node.agent()
            small = await ready(agent, push(registry, "small"))
            with pytest.raises(ImageError) as caught:
                await ready(agent, f"{OPEN}/huge:1")
            assert caught.value.kind is Kind.NO_SPACE
            assert "the node's disk is full" in caught.value.message
            assert mounts.mounted_below(node.images) == {small.rootfs}
            assert daemon.listed("leases") == {small.rootfs.parent.name}
            assert await ready(agent, push(registry, "after")), "what was half unpacked made room"
            await node.clear()
            await client.close()
    finally:
        unmount_all(directory)
        unmount_all(tmp_path)
