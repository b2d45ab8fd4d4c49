"""The client and the reflector against a real kube-apiserver, also while it is away."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sandlot_kube import paths
from sandlot_kube.access import Access, from_kubeconfig
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError, KubeUnreachable
from sandlot_kube.objects import Pod
from sandlot_kube.reflector import Reflector

from tests.goodbyes import sockets_closed
from tests.kube.apiserver import ApiServer
from tests.leaks import snapshot
from tests.waiting import SECONDS, until

pytestmark = pytest.mark.programs


class Cache:
    """The pods as a reflector tells of them."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self._news = asyncio.Event()

    def replaced(self, pods: list[Pod]) -> None:
        self.pods = {pod.metadata.name: pod for pod in pods}
        self._news.set()

    def changed(self, pod: Pod) -> None:
        self.pods[pod.metadata.name] = pod
        self._news.set()

    def deleted(self, pod: Pod) -> None:
        self.pods.pop(pod.metadata.name, None)
        self._news.set()

    async def until(self, condition: Callable[[dict[str, Pod]], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition(self.pods):
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def namespace(apiserver: ApiServer) -> Iterator[str]:
    yield apiserver.namespace()
    if not apiserver.running:
        apiserver.start()


@asynccontextmanager
async def connected(apiserver: ApiServer, namespace: str) -> AsyncIterator[KubeClient]:
    async with sockets_closed():
        client = KubeClient(apiserver.access(namespace=namespace))
        try:
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def following(client: KubeClient, *, idle: float = 90.0) -> AsyncIterator[tuple[Reflector[Pod], Cache]]:
    cache = Cache()
    reflector = Reflector(
        client,
        paths.pods(client.namespace),
        item=Pod,
        params={"labelSelector": "app=x"},
        replaced=cache.replaced,
        changed=cache.changed,
        deleted=cache.deleted,
        idle=idle,
        page=2,
    )
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector, cache
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def make(client: KubeClient, name: str, *, app: str = "x") -> None:
    metadata = {"name": name, "labels": {"app": app}, "annotations": {"note": "ü"}}
    spec = {"containers": [{"name": "sandbox", "image": "none"}], "nodeName": "n1"}
    await client.request("POST", paths.pods(client.namespace), body={"metadata": metadata, "spec": spec})


async def test_a_pod_is_made_changed_read_and_deleted(apiserver: ApiServer, namespace: str) -> None:
    async with connected(apiserver, namespace) as client, following(client) as (reflector, cache):
        await reflector.synced.wait()
        await make(client, "a")
        await make(client, "other", app="y")
        status = {
            "phase": "Running",
            "podIP": "127.0.0.9",
            "containerStatuses": [
                {
                    "name": "sandbox",
                    "image": "none",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 1,
                    "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                }
            ],
            "conditions": [{"type": "Ready", "status": "False", "reason": "PodFailed"}],
        }
        path = f"{paths.pods(namespace, 'a')}/status"
        await client.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)
        await cache.until(lambda pods: "a" in pods and pods["a"].status.pod_ip is not None)
        pod = cache.pods["a"]
        assert (pod.spec.node_name, pod.status.phase, pod.status.pod_ip) == ("n1", "Running", "127.0.0.9")
        assert pod.metadata.annotations == {"note": "ü"}
        container, condition = pod.container("sandbox"), pod.condition("Ready")
        assert container is not None
        assert container.state.terminated is not None
        assert (container.state.terminated.exit_code, container.restart_count) == (137, 1)
        assert condition is not None
        assert condition.reason == "PodFailed"
        await client.request("DELETE", paths.pods(namespace, "a"), params={"gracePeriodSeconds": "0"})
        await cache.until(lambda pods: not pods)


async def test_what_is_there_before_comes_by_pages(apiserver: ApiServer, namespace: str) -> None:
    async with connected(apiserver, namespace) as client:
        for index in range(5):
            await make(client, f"p{index}")
        async with following(client) as (reflector, cache):
            await reflector.synced.wait()
            assert sorted(cache.pods) == ["p0", "p1", "p2", "p3", "p4"]


async def test_refusals_are_the_servers_own_words(apiserver: ApiServer, namespace: str) -> None:
    async with connected(apiserver, namespace) as client:
        with pytest.raises(KubeError, match='pods "nope" not found') as missing:
            await client.request("GET", paths.pods(namespace, "nope"))
        await make(client, "a")
        with pytest.raises(KubeError) as twice:
            await make(client, "a")
        with pytest.raises(KubeError, match=r"spec\.containers") as bad:
            await client.request("POST", paths.pods(namespace), body={"metadata": {"name": "b"}})
    found = [(error.value.status, error.value.reason) for error in (missing, twice, bad)]
    assert found == [(404, "NotFound"), (409, "AlreadyExists"), (422, "Invalid")]


async def test_a_wrong_token_and_an_unknown_certificate(apiserver: ApiServer, namespace: str) -> None:
    access = apiserver.access()
    access.token = "wrong"
    client = KubeClient(access)
    with pytest.raises(KubeError) as refused:
        await client.request("GET", paths.pods(namespace))
    await client.close()
    assert refused.value.status == 401
    stranger = KubeClient(Access(apiserver.url, ssl.create_default_context(), token=apiserver.token))
    with pytest.raises(KubeUnreachable, match="certificate"):
        await stranger.request("GET", paths.pods(namespace))
    await stranger.close()


async def test_a_kubeconfig_leads_to_it(apiserver: ApiServer, namespace: str, tmp_path: Path) -> None:
    path = apiserver.kubeconfig(tmp_path / "config", namespace=namespace)
    client = KubeClient(from_kubeconfig([path], context="test"))
    assert b'"PodList"' in await client.request("GET", paths.pods(client.namespace))
    await client.close()


async def test_a_server_that_dies_and_comes_back_is_followed_again(
    apiserver: ApiServer, namespace: str
) -> None:
    async with connected(apiserver, namespace) as client, following(client) as (reflector, cache):
        await make(client, "before")
        await cache.until(lambda pods: "before" in pods)
        await asyncio.to_thread(apiserver.stop)
        with pytest.raises(KubeUnreachable):
            await client.request("GET", paths.pods(namespace))
        await asyncio.to_thread(apiserver.start)
        await client.request("DELETE", paths.pods(namespace, "before"), params={"gracePeriodSeconds": "0"})
        await make(client, "after")
        await cache.until(lambda pods: list(pods) == ["after"])
        assert reflector.failure is None


async def test_a_server_that_hangs_is_noticed(apiserver: ApiServer, namespace: str) -> None:
    async with connected(apiserver, namespace) as client, following(client, idle=1.0) as (reflector, cache):
        await reflector.synced.wait()
        with apiserver.frozen():
            await until(lambda: reflector.failure is not None)
        await make(client, "after")
        await cache.until(lambda pods: "after" in pods)


async def test_a_restart_of_the_session_s_server_is_no_leak_of_another_fixture(
    apiserver: ApiServer, namespace: str
) -> None:
    before = snapshot().children
    await asyncio.to_thread(apiserver.stop)
    await asyncio.to_thread(apiserver.start)
    assert snapshot().children <= before
