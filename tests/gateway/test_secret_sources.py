"""Where secrets by reference come from has the same rules on one machine and on Kubernetes, with a real API server."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest
from aiohttp import web
from sandlot_gateway.backends.kubernetes.secrets import KubernetesSecrets
from sandlot_gateway.backends.kubernetes.settings import KubernetesSettings
from sandlot_gateway.backends.local.secrets import DirectorySecrets
from sandlot_gateway.core.backend import Unavailable
from sandlot_gateway.core.secret_refs import SecretRef, SecretSource
from sandlot_gateway.engine.secret_values import SecretValues
from sandlot_kube.client import KubeClient

from tests.gateway.replica import new_sandbox
from tests.kube.apiserver import ApiServer
from tests.kube.scripted import answered, failed, scripted
from tests.waiting import until


class Keeper(Protocol):
    """The operator."""

    source: SecretSource

    async def put(self, secret: str, data: Mapping[str, bytes], *, tenant: str) -> None: ...


class OnDisk:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.source: SecretSource = DirectorySecrets(directory)

    async def put(self, secret: str, data: Mapping[str, bytes], *, tenant: str) -> None:
        for key, value in data.items():
            file = self.directory / tenant / secret / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(value)


class OnKubernetes:
    def __init__(self, server: ApiServer, client: KubeClient) -> None:
        self.server = server
        self.client = client
        self.path = f"/api/v1/namespaces/{client.namespace}/secrets"
        settings = KubernetesSettings()
        self.source: SecretSource = KubernetesSecrets(client, namespace=client.namespace, settings=settings)

    async def put(self, secret: str, data: Mapping[str, bytes], *, tenant: str) -> None:
        await self.write(secret, data, {f"tenant.sandlot.dev/{tenant}": "true"})

    async def write(self, secret: str, data: Mapping[str, bytes], labels: dict[str, str]) -> None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        body = {"metadata": {"name": secret, "labels": labels}, "data": encoded}
        await asyncio.to_thread(self._write, secret, body)

    def _write(self, secret: str, body: object) -> None:
        with suppress(Exception):
            self.server.call("DELETE", f"{self.path}/{secret}")
        self.server.call("POST", self.path, body)


@pytest.fixture
async def kubernetes(apiserver: ApiServer) -> AsyncIterator[OnKubernetes]:
    namespace = await asyncio.to_thread(apiserver.namespace, "secrets")
    client = KubeClient(apiserver.access(namespace=namespace))
    yield OnKubernetes(apiserver, client)
    await client.close()


@pytest.fixture(params=["local", pytest.param("kubernetes", marks=pytest.mark.programs)])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Keeper:
    return OnDisk(tmp_path) if request.param == "local" else request.getfixturevalue("kubernetes")


async def test_a_tenant_gets_its_own_and_the_next_read_a_new_value(keeper: Keeper) -> None:
    read = keeper.source.read
    await keeper.put("one.more", {"a": b"1\n", ".b": b"\xff"}, tenant="alpha")
    assert await read("one.more", {"a", ".b", "c"}, tenant="alpha") == {"a": b"1\n", ".b": b"\xff"}
    for secret, tenant in (("one.more", "beta"), ("two", "alpha"), ("one.more", "alph"), ("one.more", "")):
        assert await read(secret, {"a"}, tenant=tenant) == {}
    await keeper.put("one.more", {"a": b"2"}, tenant="alpha")
    assert await read("one.more", {"a"}, tenant="alpha") == {"a": b"2"}


@pytest.mark.programs
async def test_a_label_gives_it_to_its_tenant_alone(kubernetes: OnKubernetes) -> None:
    label = "tenant.sandlot.dev/"
    cases = [
        ({}, ()),
        ({"tenant": "alpha"}, ()),
        ({f"{label}alpha": "false", f"{label}beta": ""}, ()),
        ({f"{label}alpha": "true", f"{label}beta": "true"}, ("alpha", "beta")),
    ]
    for labels, allowed in cases:
        await kubernetes.write("one", {"k": b"v"}, labels)
        for tenant in ("alpha", "beta", "gamma"):
            found = await kubernetes.source.read("one", {"k"}, tenant=tenant)
            assert found == ({"k": b"v"} if tenant in allowed else {}), (labels, tenant)


def labelled(value: str) -> dict[str, object]:
    """A Secret of alpha's."""
    data = {"k": base64.b64encode(value.encode()).decode()}
    return {"metadata": {"labels": {"tenant.sandlot.dev/alpha": "true"}}, "data": data}


async def test_reads_at_the_same_time_share_requests_and_none_is_older_than_its_question() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def old(request: web.Request) -> web.StreamResponse:
        asked.set()
        await go.wait()
        return await answered(200, labelled("old"))(request)

    async with scripted() as (server, client):
        source = KubernetesSecrets(client, namespace="secrets", settings=KubernetesSettings())

        def read() -> asyncio.Task[Mapping[str, bytes]]:
            return asyncio.create_task(source.read("one", {"k"}, tenant="alpha"))

        server.lists = [old, answered(200, labelled("new"))]
        first = read()
        await asked.wait()
        later = [read() for _ in range(100)]
        await asyncio.sleep(0)  # they ask
        later.pop(0).cancel()
        go.set()
        assert await first == {"k": b"old"}
        assert [await one for one in later] == [{"k": b"new"}] * 99
        assert [request.path for request in server.requests] == ["/api/v1/namespaces/secrets/secrets/one"] * 2


async def test_the_secrets_of_a_create_are_read_side_by_side_eight_at_a_time() -> None:
    """The others of the client's connections are for launches and records."""
    go = asyncio.Event()

    async def secret(request: web.Request) -> web.StreamResponse:
        await go.wait()
        return await answered(200, labelled(request.path.rpartition("/")[2]))(request)

    async def any_one(request: web.Request) -> web.StreamResponse:
        return await (secret if "/secrets/" in request.path else answered(200, {}))(request)

    async with scripted() as (server, client):
        values = SecretValues(KubernetesSecrets(client, namespace="n", settings=KubernetesSettings()))
        server.lists = [any_one] * 33
        names = [f"s{number}" for number in range(32)]
        of = new_sandbox(secret_refs={name.upper(): SecretRef(name, "k") for name in names})
        of.tenant = "alpha"
        reading = asyncio.create_task(values.of(of, {}))
        await until(lambda: len(server.requests) == 8)
        await client.request("GET", "/launch")
        assert len(server.requests) == 9
        go.set()
        assert await reading == {name.upper(): name for name in names}


async def test_a_refusal_takes_the_same_time_whether_others_have_such_a_secret() -> None:
    loop = asyncio.get_running_loop()
    async with scripted() as (server, client):
        source = KubernetesSecrets(client, namespace="n", settings=KubernetesSettings())
        for answer in (failed(404, "NotFound"), answered(200, labelled("x" * 4))):
            server.lists = [answer]
            began = loop.time()
            assert await source.read("one", {"k"}, tenant="beta") == {}
            assert loop.time() - began >= 0.099


async def test_a_certificate_s_key_is_for_no_tenant_even_if_it_is_labelled() -> None:
    async with scripted() as (server, client):
        source = KubernetesSecrets(client, namespace="n", settings=KubernetesSettings())
        for kind, found in (("kubernetes.io/tls", {}), ("Opaque", {"k": b"v"})):
            server.lists = [answered(200, {**labelled("v"), "type": kind})]
            assert await source.read("sandlot-sidecar-tls", {"k"}, tenant="alpha") == found


@pytest.mark.programs
async def test_an_api_server_that_does_not_let_it_read_is_no_fault_of_the_caller(
    apiserver: ApiServer, kubernetes: OnKubernetes
) -> None:
    path = f"/api/v1/namespaces/{kubernetes.client.namespace}/serviceaccounts"
    await asyncio.to_thread(apiserver.call, "POST", path, {"metadata": {"name": "nobody"}})
    made = await asyncio.to_thread(apiserver.call, "POST", f"{path}/nobody/token", {"spec": {}})
    namespace = kubernetes.client.namespace
    await kubernetes.put("one", {"k": b"v"}, tenant="alpha")
    for token in (made["status"]["token"], "no token"):
        client = KubeClient(apiserver.access(namespace=namespace, token=token))
        source = KubernetesSecrets(client, namespace=namespace, settings=KubernetesSettings())
        for secret in ("one", "two"):
            with pytest.raises(Unavailable, match="cannot be read") as failed:
                await source.read(secret, {"k"}, tenant="alpha")
            assert failed.value.retry_after >= 1
            assert secret not in str(failed.value)
        await client.close()
    with apiserver.frozen():
        silent = KubernetesSecrets(
            kubernetes.client, namespace=namespace, settings=KubernetesSettings(secrets_timeout=0.3)
        )
        with pytest.raises(Unavailable, match="does not answer"):
            await silent.read("one", {"k"}, tenant="alpha")


async def test_a_file_that_is_none_is_no_secret_and_blocks_nothing(tmp_path: Path) -> None:
    own = tmp_path / "alpha" / "one"
    (own / "directory").mkdir(parents=True)
    os.mkfifo(own / "pipe")
    (own / "..data").mkdir()
    (own / "..data" / "k").write_text("v")
    (own / "k").symlink_to("..data/k")  # as the kubelet mounts a Secret
    (own / "out").symlink_to("/etc/hostname")
    (own / "loop").symlink_to("loop")
    source = DirectorySecrets(tmp_path)
    keys = {"directory", "pipe", "k", "out", "loop", "none"}
    assert await source.read("one", keys, tenant="alpha") == {"k": b"v"}
    with pytest.raises(Unavailable):
        await DirectorySecrets(tmp_path / "none").read("one", {"k"}, tenant="alpha")
