"""The engine on a real containerd with real registries: files, failures, garbage collection, releases."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from pathlib import Path

import pytest
from sandlot_node.containerd import mounts
from sandlot_node.containerd.client import Client
from sandlot_node.containerd.configuration import registries_path
from sandlot_node.images import Auth, Image, Progress, SlotId

from tests.cluster.relay import relay
from tests.node.agents import Node, ready
from tests.node.private_containerd import NEEDS_CONTAINERD, config_in, containerd, unmount_all
from tests.node.program import SLOW
from tests.node.registries import (
    BASE,
    OPEN,
    PASSWORD,
    PRIVATE,
    USER,
    Layer,
    Registries,
    TestImage,
    labelled,
    tell_nodes,
)
from tests.waiting import until

pytestmark = NEEDS_CONTAINERD

OURS = ("leases", "snapshots", "content", "images")


def contents(node: Node) -> dict[str, set[str]]:
    return {kind: node.daemon.listed(kind) for kind in OURS}


def share(directory: Path) -> None:
    """Make a directory a mount that propagates, as the host's is."""
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    subprocess.run(["mount", "--make-shared", directory], check=True)


async def test_an_image_is_there_whole_and_read_only(node: Node, registry: Registries) -> None:
    digest = registry.push("whole", labelled("whole"))
    agent = await node.agent()
    found = await ready(agent, f"{OPEN}/whole:1")
    assert found.rootfs.parent.parent == node.images
    assert found.rootfs.parent.name.startswith(found.id.replace(":", "-") + ".")
    names = sorted(path.relative_to(found.rootfs).as_posix() for path in found.rootfs.rglob("*"))
    assert names == ["bin", "bin/tool", "etc", "etc/base", "etc/name"]
    assert (found.rootfs / "bin/tool").read_bytes() == b"a newer tool"
    with pytest.raises(OSError, match="Read-only file system"):
        (found.rootfs / "new").write_text("no")
    assert config_in(found.rootfs.parent / "image.json") == {
        "id": found.id,
        "digests": [f"{OPEN}/whole@{digest}"],
        "platform": "linux/amd64",
        "env": {"PATH": "/bin", "EMPTY": "", "WITH": "a=b"},
        "workdir": "/etc",
        "user": "1000:1000",
        "entrypoint": ["/bin/tool"],
        "cmd": ["--help"],
        "stop_signal": "SIGINT",
    }


async def test_an_image_of_one_layer_is_read_only_too(node: Node, registry: Registries) -> None:
    registry.push("single", TestImage(layers=[BASE]))
    found = await ready(await node.agent(), f"{OPEN}/single:1")
    assert (found.rootfs / "gone").read_bytes() == b"soon"
    with pytest.raises(OSError, match="Read-only file system"):
        (found.rootfs / "gone").unlink()


async def test_a_pod_that_runs_already_sees_the_image_whole(node: Node, registry: Registries) -> None:
    """A slave of the images' directory, as a pod's mount of it: the name and what is mounted there come at once."""
    registry.push("seen", labelled("seen"))
    share(node.images)
    script = """
        mount --make-rslave /; echo ready
        while ! names=$(ls "$1"/*/rootfs/etc/name 2>/dev/null); do
            for path in "$1"/*/rootfs; do [ ! -d "$path" ] || [ -e "$path/etc/name" ] || { echo half; exit 1; }; done
        done
        cat $names; read word; ls "$1"; echo end
    """
    pod = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, "pod", node.images),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert pod.stdin is not None
    assert pod.stdout is not None
    try:
        assert await pod.stdout.readline() == b"ready\n"
        agent = await node.agent()
        found = await ready(agent, f"{OPEN}/seen:1")
        assert await pod.stdout.read(4) == b"seen"
        await agent.delete(found.id)
        pod.stdin.write(b"go on\n")
        pod.stdin.close()
        assert await pod.stdout.read() == b"end\n", "the name went with the mount"
    finally:
        pod.kill() if pod.returncode is None else None
        await pod.wait()


async def test_containerd_tells_where_it_looks_for_registries(node: Node, registry: Registries) -> None:
    assert await registries_path(node.client) == str(registry.certs)


async def test_many_requests_make_one_mount(node: Node, registry: Registries) -> None:
    registry.push("many", labelled("many"))
    registry.push("alias", labelled("many"))
    agent = await node.agent()
    references = [f"{OPEN}/many:1", f"{OPEN}/alias:1", f"{PRIVATE}/many:1"]
    auth = Auth(username=USER, password=PASSWORD)
    asked = [
        ready(agent, reference, tenant=f"t{number}", auth=auth)
        for number in range(4)
        for reference in references
    ]
    found = await asyncio.gather(*asked)
    assert len({one.rootfs for one in found}) == 1
    assert len(mounts.mounted_below(node.images)) == 1
    assert set(agent.ledger.entries[found[0].id].names) == set(references)


async def test_progress_ends_with_the_bytes_of_all_layers(node: Node, registry: Registries) -> None:
    noise = random.Random(1).randbytes(24 << 20)
    layers = [Layer(files={f"noise-{number}": noise[number << 23 :][: 8 << 20]}) for number in range(3)]
    registry.push("large", TestImage(layers=layers))
    agent = await node.agent()
    seen: list[Progress] = []

    async def pull() -> None:
        async with node.engine().fetched(f"{SLOW}/large:1", None, seen.append, lambda _: None):
            pass

    with relay(f"127.0.0.1:{registry.port}", rate=8 << 20) as (slow, address):
        tell_nodes(registry.certs, SLOW, address)
        with slow.held(after=1 << 20):
            pulling = asyncio.create_task(pull())
            await until(lambda: any(one.total is not None for one in seen))
        await pulling
    assert seen[0].phase == "resolving"
    known = [one for one in seen if one.total is not None]
    assert {one.total // (24 << 20) for one in known} == {1}
    assert all(0 <= one.done <= one.total for one in known)
    del agent


async def test_a_prepared_image_outlives_garbage_collection(node: Node, registry: Registries) -> None:
    registry.push("kept", labelled("kept"))
    agent = await node.agent()
    found = await ready(agent, f"{OPEN}/kept:1")
    assert "io.cri-containerd.pinned=pinned" in node.daemon.image_labels()[found.id]
    # As `crictl rmi`, against which a pin does not help.
    node.daemon.ctr("images", "rm", "--sync", f"{OPEN}/kept:1", found.id, *found.digests)
    registry.push("other", labelled("other"))
    await agent.delete((await ready(agent, f"{OPEN}/other:1")).id)
    assert (found.rootfs / "etc/name").read_text() == "kept"
    assert (found.rootfs / "etc/base").read_text() == "base"


async def test_a_release_leaves_nothing_and_takes_nothing_of_others(node: Node, registry: Registries) -> None:
    registry.push("stays", labelled("stays"))
    registry.push("goes", labelled("goes"))
    agent = await node.agent()
    stays = await ready(agent, f"{OPEN}/stays:1")
    before = contents(node)
    goes = await ready(agent, f"{OPEN}/goes:1")
    assert agent.ledger.used() < sum(sum(one.parts.values()) for one in (stays, goes)), "they share a layer"
    await agent.delete(goes.id)
    assert contents(node) == before
    assert not goes.rootfs.parent.exists()
    assert (stays.rootfs / "etc/base").read_text() == "base"
    again = await ready(agent, f"{OPEN}/goes:1")
    assert again.id == goes.id
    assert again.rootfs != goes.rootfs, "gVisor never looks again at a name that went"
    assert (again.rootfs / "etc/name").read_text() == "goes"


async def test_a_release_leaves_an_image_that_the_node_had_before(node: Node, registry: Registries) -> None:
    registry.push("before", labelled("before"))
    reference = f"{OPEN}/before:1"
    client = node.engine()
    async with client.fetched(reference, None, lambda _: None, lambda _: None) as found:
        pass
    agent = await node.agent()
    assert (await ready(agent, reference)).id == found
    await agent.delete(found)
    assert {reference, found} <= node.daemon.listed("images")
    assert "pinned=pinned" not in node.daemon.image_labels()[found]
    node.daemon.ctr("images", "rm", "--sync", reference, found)


async def test_an_open_file_is_read_to_its_end_after_a_release(node: Node, registry: Registries) -> None:
    registry.push("open", labelled("open"))
    agent = await node.agent()
    found = await ready(agent, f"{OPEN}/open:1")
    with (found.rootfs / "etc/name").open() as file:
        await agent.delete(found.id)
        assert file.read() == "open"
    assert not mounts.mounted_below(node.images)


async def test_127_layers_fit_into_a_mount(node: Node, registry: Registries) -> None:
    layers = [Layer(files={f"layer-{number}": str(number).encode()}) for number in range(127)]
    registry.push("layers", TestImage(layers=layers))
    found = await ready(await node.agent(), f"{OPEN}/layers:1")
    assert sorted(os.listdir(found.rootfs)) == sorted(f"layer-{number}" for number in range(127))


async def test_another_snapshotter_is_found_by_itself(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, registry: Registries
) -> None:
    registry.push("native", labelled("native"))
    (tmp_path / "images").mkdir()
    with containerd(
        tmp_path_factory.mktemp("n"), certs=registry.certs, snapshotter="native", local=True
    ) as daemon:
        client = Client(str(daemon.socket))
        node = Node(client, daemon, images=tmp_path / "images", state=tmp_path / "state")
        try:
            found = await ready(await node.agent(), f"{OPEN}/native:1")
            assert (found.rootfs / "etc/name").read_text() == "native"
            with pytest.raises(OSError, match="Read-only file system"):
                (found.rootfs / "new").write_text("no")
            await node.clear()
            assert not mounts.mounted_below(node.images)
        finally:
            await client.close()
            unmount_all(tmp_path)


async def test_the_budget_evicts_the_least_recently_used(node: Node, registry: Registries) -> None:
    for name in ("one", "two", "three"):
        data = random.Random(name).randbytes(4 << 20)
        registry.push(name, TestImage(layers=[Layer(files={"data": data})]))
    agent = await node.agent(budget=20 << 20)
    found: list[Image] = []
    for name in ("one", "two"):
        found.append(await ready(agent, f"{OPEN}/{name}:1"))
    used = agent.ledger.used()
    assert 8 << 20 <= used <= 17 << 20
    agent = await node.agent(budget=used + (1 << 20))
    agent.use(found[0].id, SlotId("slot"))
    third = await ready(agent, f"{OPEN}/three:1")
    assert {one.id for one in agent.images()} == {found[0].id, third.id}
    assert agent.ledger.used() <= used + (1 << 20)
    assert {path.parent.parent.name for path in map(Path, mounts.mounted_below(node.images))} == {
        node.images.name
    }
