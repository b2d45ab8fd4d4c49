"""What the engine refuses, and for whom: credentials, absent images, other platforms, on a real containerd."""

from __future__ import annotations

import pytest
from sandlot_node.failures import Kind
from sandlot_node.images import Auth, SlotId

from tests.node.agents import Node, failing, ready
from tests.node.private_containerd import NEEDS_CONTAINERD
from tests.node.registries import DEAD, OPEN, PASSWORD, PRIVATE, USER, Registries, labelled

pytestmark = NEEDS_CONTAINERD


async def test_a_private_image_is_for_those_who_prove_it(
    node: Node, registry: Registries, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    registry.push("secret", labelled("secret"))
    reference = f"{PRIVATE}/secret:1"
    agent = await node.agent()
    assert (await failing(agent, reference, tenant="ben")).kind is Kind.UNAUTHORIZED
    right, wrong = Auth(username=USER, password=PASSWORD), Auth(username=USER, password="a wrong one")
    found = await ready(agent, reference, tenant="anne", auth=right)
    assert await ready(agent, reference, tenant="anne") == found
    for request in ({}, {"auth": wrong}):
        refused = await failing(agent, reference, tenant="ben", **request)
        assert refused.kind is Kind.UNAUTHORIZED, "the node has it, and ben has shown nothing"
        assert reference in refused.message
    digest = f"{PRIVATE}/secret@{found.digests[0].partition('@')[2]}"
    assert (await failing(agent, digest, tenant="ben")).kind is Kind.UNAUTHORIZED
    assert await ready(agent, reference, tenant="ben", auth=right) == found
    agent.use(found.id, SlotId("slot"))
    for secret in (PASSWORD, "a wrong one"):
        assert secret not in caplog.text
        for path in (node.images, node.state, node.daemon.directory):
            assert not node.daemon.has(path, secret), path


async def test_failures_are_told_apart(node: Node, registry: Registries) -> None:
    registry.push("there", labelled("there"))
    agent = await node.agent()
    absent = await failing(agent, f"{OPEN}/nowhere:1")
    assert (absent.kind, absent.message) == (
        Kind.NOT_FOUND,
        f"the registry has no image {OPEN}/nowhere:1; check its name and tag",
    )
    assert (await failing(agent, f"{OPEN}/there:2")).kind is Kind.NOT_FOUND
    assert (await failing(agent, f"{OPEN}/there@sha256:{'0' * 64}")).kind is Kind.NOT_FOUND
    assert (await failing(agent, f"{DEAD}/there:1")).kind is Kind.UNAVAILABLE


@pytest.mark.parametrize("index", [True, False], ids=["index", "manifest"])
async def test_a_wrong_platform_names_those_that_the_image_has(
    node: Node, registry: Registries, index: bool
) -> None:
    others = [labelled("other", architecture=name) for name in ("arm64", "s390x")]
    if index:
        registry.push_index("elsewhere", others)
    else:
        registry.push("elsewhere", others[0])
    refused = await failing(await node.agent(), f"{OPEN}/elsewhere:1")
    assert refused.kind is Kind.WRONG_PLATFORM
    assert "no variant for linux/amd64" in refused.message
    assert f"it has linux/arm64{', linux/s390x' if index else ''}. Build" in refused.message


async def test_an_index_gives_this_nodes_variant(node: Node, registry: Registries) -> None:
    registry.push_index("variants", [labelled("arm", architecture="arm64"), labelled("amd")])
    found = await ready(await node.agent(), f"{OPEN}/variants:1")
    assert (found.rootfs / "etc/name").read_text() == "amd"


async def test_an_image_that_the_registry_no_longer_has_stays(node: Node, registry: Registries) -> None:
    digest = registry.push("deleted", labelled("deleted"))
    found = await ready(await node.agent(), f"{OPEN}/deleted:1")
    registry.delete("deleted", digest)
    agent = await node.agent()
    assert (await failing(agent, f"{OPEN}/deleted:1")).kind is Kind.NOT_FOUND
    assert [one.id for one in agent.images()] == [found.id]
    assert (found.rootfs / "etc/name").read_text() == "deleted"


async def test_a_tag_that_moved_is_another_labelled(node: Node, registry: Registries) -> None:
    registry.push("moving", labelled("before"))
    first = await ready(await node.agent(), f"{OPEN}/moving:1")
    registry.push("moving", labelled("after"))
    second = await ready(await node.agent(), f"{OPEN}/moving:1")
    assert (first.rootfs / "etc/name").read_text() == "before"
    assert (second.rootfs / "etc/name").read_text() == "after"
