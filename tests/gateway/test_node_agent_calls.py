"""What a gateway asks of node agents, and what it makes of those that fail or do not answer."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sandlot_contract.node_agent import LONGEST_WAIT
from sandlot_gateway.backends.kubernetes.claim_images import KubernetesImages
from sandlot_gateway.backends.kubernetes.node_agents import (
    AgentError,
    AgentUnreachable,
    NodeAgents,
    Prepared,
    Progress,
)
from sandlot_gateway.backends.kubernetes.settings import KubernetesSettings
from sandlot_gateway.core.backend import NodeFailed
from sandlot_kube.objects import Metadata, Pod, PodSpec, PodStatus

from tests.gateway.image_use_parts import ONE, SLOT, Agents, Sidecar, slot
from tests.waiting import until


class Pool:
    """Answers each request with `answer`, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.targets: list[str] = []
        self.headers: list[Any] = []

    async def fetch(self, address: str, method: str, target: str, **options: Any) -> Any:
        self.targets.append(f"{method} {target}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def agents_of(pool: Pool, token: Path) -> NodeAgents:
    token.write_text("token\n")
    agents = NodeAgents(pool=cast("Any", pool), token_file=token, timeout=1.0)
    agents.changed(
        Pod(metadata=Metadata(name="a"), spec=PodSpec(node_name="n1"), status=PodStatus(pod_ip="10.0.0.1"))
    )
    return agents


async def test_no_name_leads_to_another_route_of_the_agent(tmp_path: Path) -> None:
    pool = Pool(SimpleNamespace(status=204, body=b""))
    agents = agents_of(pool, tmp_path / "token")
    await agents.unuse("n1", "../x?y#z", slot="a/b", until=1.5)
    assert pool.targets == ["DELETE /v1/images/..%2Fx%3Fy%23z/uses/a%2Fb?until=1.5"]


async def test_a_use_tells_since_when(tmp_path: Path) -> None:
    body = json.dumps({"id": ONE, "rootfs": "/x", "since": 1795000000.123456}).encode()
    agents = agents_of(Pool(SimpleNamespace(status=200, body=body)), tmp_path / "token")
    assert (await agents.use("n1", ONE, slot="a")).since == 1795000000.123456


async def test_no_agent_is_asked_to_wait_for_longer_than_agents_do(tmp_path: Path) -> None:
    pool = Pool(SimpleNamespace(status=202, body=b'{"phase": "pulling"}'))
    agents = agents_of(pool, tmp_path / "token")
    for wait in (1.0, 45.0):
        assert await agents.prepare("n1", "one:1", tenant="t", auth=None, wait=wait) == Progress("pulling")
    assert pool.targets == ["POST /v1/images?wait=1", f"POST /v1/images?wait={LONGEST_WAIT:g}"]


async def test_a_token_that_cannot_be_read_again_is_an_agent_that_is_away(tmp_path: Path) -> None:
    pool = Pool(SimpleNamespace(status=401, body=b""))
    agents = agents_of(pool, tmp_path / "token")
    (tmp_path / "token").unlink()
    with pytest.raises(AgentUnreachable, match="check --node-agent-token-file"):
        await agents.images("n1")
    pool.answer = ValueError("invalid header")
    with pytest.raises(AgentUnreachable, match="does not answer"):
        await agents.images("n1")


async def test_a_failure_without_a_code_is_not_the_agents_own(tmp_path: Path) -> None:
    """As of a request that was under way when the agent ended."""
    pool = Pool(SimpleNamespace(status=500, body=b"Internal Server Error"))
    agents = agents_of(pool, tmp_path / "token")
    with pytest.raises(AgentUnreachable, match="node agent of n1 answered 500 without a reason"):
        await agents.images("n1")
    pool.answer = SimpleNamespace(status=500, body=b'{"code": "failed", "detail": "its log has the cause"}')
    with pytest.raises(AgentError, match="its log has the cause"):
        await agents.images("n1")


class Node(Agents):
    """A node agent with one image; `failure` is raised by its lists."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = {"n1"}
        self.failure: Exception | None = RuntimeError("unexpected")
        self.lists = 0

    async def images(self, node: str) -> list[Prepared]:
        self.lists += 1
        if self.failure is not None:
            raise self.failure
        return [Prepared(ONE, "/images/rootfs", names=["one:1"])]

    async def prepare(self, node: str, image: str, *, slot: str = SLOT, **options: Any) -> Any:
        return Prepared(ONE, "/images/rootfs", names=["one:1"])


async def test_what_fails_once_ends_no_looks_at_nodes() -> None:
    node = Node()
    settings = KubernetesSettings(image_list_pause=0.0)
    images = KubernetesImages(cast("Any", node), pool=cast("Any", Sidecar(None)), settings=settings)
    images.start()
    await until(lambda: node.lists >= 2)
    node.failure = None
    await until(lambda: images.nodes_with("one:1") == {"n1"})
    await images.close(timeout=60)


async def test_a_node_whose_agent_answers_no_claim_comes_last_at_once() -> None:
    node = Node()
    images = KubernetesImages(
        cast("Any", node), pool=cast("Any", Sidecar(None)), settings=KubernetesSettings(agent_outage=7.0)
    )
    await images.claim("one:1", tenant="t", instance=slot())
    assert images.nodes_with("one:1") == {"n1"}
    node.answers = False
    with pytest.raises(NodeFailed) as caught:
        await images.claim("one:1", tenant="t", instance=slot())
    assert (caught.value.lasts, images.nodes_with("one:1")) == (7.0, ())
    await images.close(timeout=60)
