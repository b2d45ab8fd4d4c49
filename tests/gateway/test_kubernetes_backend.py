"""A gateway with the Kubernetes backend over a real API server, real pods' objects and real sidecars on loopback."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandlot_gateway.app import Gateway
from sandlot_gateway.backends.kubernetes.backend import KubernetesBackend
from sandlot_gateway.backends.kubernetes.settings import KubernetesSettings
from sandlot_gateway.backends.kubernetes.translate import sandbox_body
from sandlot_gateway.core.backend import Unavailable
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slots import Heard
from sandlot_gateway.serve import serve
from sandlot_gateway.settings import Settings
from sandlot_gateway.sidecars import ClaimAnswer
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.template import Template

from tests.gateway.kubelet import Kubelet, apply_crds
from tests.gateway.sidecars import new_instance_id
from tests.kube.apiserver import ApiServer, apiserver
from tests.waiting import loop_turns, until

__all__ = ["apiserver"]

pytestmark = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real sidecars make namespaces and mounts"),
]

IMAGE = "python:3.12"
TEMPLATE = Template(IMAGE, cpu=1.0, memory=256 << 20, disk=64 << 20, pids=256)
FIELDS = {
    "docker_image": IMAGE,
    "cpu_cores": 1.0,
    "memory_gb": 0.25,
    "disk_size_gb": 0.0625,
    "pids": 256,
}


class Running:
    """A gateway that serves, and a client of it."""

    def __init__(self, gateway: Gateway, url: str, client: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.url = url
        self.client = client

    @property
    def webhook(self) -> str:
        return f"http://127.0.0.1:{self.gateway.webhook_listener.port}/internal/sidecar"

    async def create(self, **fields: Any) -> httpx.Response:
        return await self.client.post("/api/v1/sandbox", json={**FIELDS, "wait_seconds": 20, **fields})

    async def made(self, **fields: Any) -> dict[str, Any]:
        answer = await self.create(**fields)
        assert answer.status_code == 201, answer.text
        assert answer.json()["status"] == "RUNNING", answer.text
        return answer.json()

    async def run(self, sandbox_id: str, command: str) -> str:
        answer = await self.client.post(f"/sbx/{sandbox_id}/exec", json={"command": command, "timeout": 20})
        assert answer.status_code == 200, answer.text
        return answer.json()["stdout"]

    async def get(self, sandbox_id: str) -> dict[str, Any]:
        return (await self.client.get(f"/api/v1/sandbox/{sandbox_id}")).json()

    async def warm(self, count: int = 1) -> None:
        await until(lambda: len(self.gateway.supply.slots.warm) >= count)

    async def is_ended_somehow(self, sandbox_id: str) -> dict[str, Any]:
        """The same of one that this gateway may never have seen live."""

        async def ended() -> dict[str, Any] | None:
            answer = await self.client.get(f"/api/v1/sandbox/{sandbox_id}")
            if answer.status_code == 503:
                return None  # so new that another gateway may have made it: it is asked for again
            assert answer.status_code == 200, answer.text
            return answer.json() if answer.json()["status"] != "RUNNING" else None

        return await until(ended, pause=0.05)

    async def is_ended(self, sandbox_id: str) -> dict[str, Any]:
        await until(lambda: not self.gateway.directory.get(sandbox_id).live)  # type: ignore[union-attr]
        return await self.get(sandbox_id)


class World:
    """One namespace with its kubelet, and the gateways in front of it."""

    def __init__(self, server: ApiServer, *, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.namespace = server.namespace("gateway")
        self.key = secrets.token_bytes(32)
        (directory / "master").write_bytes(self.key)
        self.kubelet = Kubelet(server, namespace=self.namespace, key=self.key)
        self.kubeconfig = server.kubeconfig(directory / "kubeconfig", namespace=self.namespace)

    @asynccontextmanager
    async def gateway(
        self, name: str = "a", *, backend: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[Running]:
        settings = Settings(
            **{
                "backend": "kubernetes",
                "key_file": self.directory / "master",
                "state_dir": self.directory / name,
                "port": 0,
                "webhook_port": 0,
                "api_keys": "key:alpha::operate",
                "drain": 2.0,
                "log_level": "warning",
                **options,
            }
        )
        loop = asyncio.get_running_loop()
        announced: asyncio.Future[tuple[Gateway, str]] = loop.create_future()
        ending = asyncio.Event()

        def make_backend(settings: Settings, tokens: Any, pool: Any) -> KubernetesBackend:
            client = KubeClient(self.server.access(namespace=self.namespace))
            return KubernetesBackend(
                tokens=tokens, pool=pool, settings=KubernetesSettings(**(backend or {})), client=client
            )

        task = loop.create_task(
            serve(
                settings,
                # None: chosen and made from the settings, as the command does.
                make_backend=None if backend is None else make_backend,
                ending=ending,
                announce=lambda gateway, url: announced.set_result((gateway, url)),
            )
        )
        await asyncio.wait([task, announced], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        gateway, url = announced.result()
        headers = {"Authorization": "Bearer key"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            running = Running(gateway, url, client)
            if self.kubelet.webhook is None:
                self.kubelet.webhook = running.webhook
            try:
                yield running
            finally:
                await client.aclose()
                ending.set()
                await task


@pytest.fixture
async def world(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    await asyncio.to_thread(apply_crds, apiserver)
    with tempfile.TemporaryDirectory(prefix="kg-") as directory:
        world = World(apiserver, directory=Path(directory))
        monkeypatch.setenv("KUBECONFIG", str(world.kubeconfig))
        try:
            async with world.kubelet.at_work():
                yield world
        finally:
            if not apiserver.running:
                await asyncio.to_thread(apiserver.start)


async def test_a_warm_claim_gets_its_record_and_a_delete_its_end(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made(labels=["one", "two"], environment_vars={"A": "b"})
        assert made["poolHit"] is True
        assert await gateway.run(made["id"], "echo $A") == "b\n"
        record = await kubelet.until(lambda: kubelet.of_pod(instance))
        assert record.metadata.name == made["id"]
        spec = record.spec
        assert (spec.pod_name, spec.sandbox_id, spec.tenant) == (instance, made["id"], "alpha")
        assert (spec.labels, spec.template, spec.state) == (["one", "two"], TEMPLATE, "Running")
        assert (await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "deleted"
        assert kubelet.sandboxes[made["id"]].status.ended_at is not None
        await until(lambda: gateway.gateway.backend.stats()["instances"] == 0)
        assert (await gateway.get(made["id"]))["status"] == "TERMINATED"


async def test_a_cold_start_is_asked_for_by_a_sandbox_of_the_pods_name(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        made = await gateway.made(labels=["cold"])
        assert made["poolHit"] is False
        assert await gateway.run(made["id"], "echo hello") == "hello\n"
        await kubelet.until(lambda: [s for s in kubelet.sandboxes.values() if s.spec.made_for == made["id"]])
        [(name, sandbox)] = kubelet.sandboxes.items()
        assert name.startswith("i-")
        assert (sandbox.spec.pod_name, sandbox.spec.tenant, sandbox.spec.labels) == (None, "alpha", ["cold"])
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await kubelet.until(lambda: kubelet.sandboxes[name].status.verdict)
        assert list(kubelet.sandboxes) == [name]


async def test_without_an_api_server_warm_claims_go_on_and_cold_ones_are_refused(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instances = [await kubelet.pod(TEMPLATE, pool="default") for _ in range(2)]
        await gateway.warm(2)
        first = await gateway.made()
        await asyncio.to_thread(world.server.stop)

        assert await gateway.run(first["id"], "echo on") == "on\n"
        second = await gateway.made()
        assert second["poolHit"] is True
        assert await gateway.run(second["id"], "echo too") == "too\n"
        refused = await gateway.create()
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert "API server" in refused.text
        at_once = await gateway.create(wait_seconds=0)
        assert at_once.status_code == 503, at_once.text
        assert (await gateway.client.delete(f"/api/v1/sandbox/{first['id']}")).status_code == 200
        assert (await gateway.client.get("/readyz")).status_code == 200

        await asyncio.to_thread(world.server.start)
        await kubelet.until(lambda: all(kubelet.of_pod(instance) for instance in instances), timeout=60)
        await kubelet.until(lambda: kubelet.sandboxes[first["id"]].status.verdict, timeout=60)
        assert (await kubelet.record(second["id"])).status.verdict is None
        third = None
        async with asyncio.timeout(60):
            while third is None:
                answer = await gateway.create()
                assert answer.status_code in (201, 503), answer.text
                if answer.status_code == 201:
                    third = answer.json()
                else:
                    await asyncio.sleep(float(answer.headers["retry-after"]))
        assert third["status"] == "RUNNING"
        assert await gateway.run(third["id"], "echo healed") == "healed\n"
        assert await gateway.run(second["id"], "echo still") == "still\n"


async def test_an_api_server_that_hangs_holds_a_cold_create_no_longer_than_it_may(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway(backend={"launch_timeout": 0.5}) as gateway:
        await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        with world.server.frozen():
            made = await gateway.made()
            assert await gateway.run(made["id"], "echo on") == "on\n"
            refused = await gateway.create()
            assert refused.status_code == 503, refused.text
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes, timeout=60)
        # What it may have taken before it hung is taken away again.
        await kubelet.until(lambda: list(kubelet.sandboxes) == [made["id"]], timeout=60)


async def test_two_gateways_race_for_the_same_instances_and_each_has_one_owner(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(world.gateway(name, backend={})) for name in ("a", "b")]
        for _ in range(4):
            await kubelet.pod(TEMPLATE, pool="default")
        for gateway in gateways:
            await gateway.warm(4)
        answers = await asyncio.gather(
            *(gateways[index % 2].create(wait_seconds=1, name=f"n{index}") for index in range(8))
        )
        made = [answer.json() for answer in answers]
        running = [sandbox for sandbox in made if sandbox["status"] == "RUNNING"]
        assert len(running) == 4
        assert {sandbox["status"] for sandbox in made} == {"RUNNING", "PENDING"}
        records = await kubelet.until(
            lambda: len(found := [s for s in kubelet.sandboxes.values() if s.spec.pod_name]) == 4 and found
        )
        assert {record.spec.sandbox_id for record in records} == {sandbox["id"] for sandbox in running}
        assert {record.spec.pod_name for record in records} == set(kubelet.sidecars)
        # Each gateway learns of the other's, and serves it.
        for gateway in gateways:
            await until(
                lambda gateway=gateway: all(
                    (known := gateway.gateway.directory.get(sandbox["id"])) and known.status == "RUNNING"
                    for sandbox in running
                )
            )
            for sandbox in running:
                assert await gateway.run(sandbox["id"], "echo mine") == "mine\n"
        # An end by the one that did not make it is known to the other one.
        await gateways[1].client.delete(f"/api/v1/sandbox/{running[0]['id']}")
        assert (await gateways[0].is_ended(running[0]["id"]))["status"] == "TERMINATED"


async def test_a_sandbox_can_be_used_through_any_gateway_at_once(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        await kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm()
        made = await one.made()
        assert await other.run(made["id"], "echo other") == "other\n"
        assert (await other.get(made["id"]))["status"] == "RUNNING"
        assert (await other.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert (await one.is_ended(made["id"]))["verdict"] == "deleted"
        missing = await other.client.get(f"/api/v1/sandbox/sb-{'0' * 20}")
        assert missing.status_code == 404
        assert not other.gateway.directory._changes


async def test_a_deleted_sandbox_runs_nothing_more_at_any_gateway(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        for _ in range(5):
            await kubelet.pod(TEMPLATE, pool="default")
            await one.warm()
            made = await one.made()
            assert await other.run(made["id"], "echo on") == "on\n"
            assert (await one.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
            answer = await other.client.post(
                f"/sbx/{made['id']}/exec", json={"command": "true", "timeout": 9}
            )
            assert answer.status_code >= 400, answer.text
            assert answer.json()["error"] in ("sandbox_ended", "sandbox_not_found"), answer.text


async def test_without_an_api_server_a_claim_is_known_at_any_gateway(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        for _ in range(3):
            await kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm(3)
        with world.server.frozen():
            made = await one.made()
            assert await other.run(made["id"], "echo other") == "other\n"
            # Another one so soon is looked for as well.
            next_one = await one.made()
            assert await other.run(next_one["id"], "echo next") == "next\n"
            # The one that is still warm is there for a claim.
            second = await other.made()
            assert await one.run(second["id"], "echo one") == "one\n"


async def test_an_instance_is_known_by_its_webhook_alone(world: World) -> None:
    """Its pod has no object, so no watch can show it; DNS has no name for it either."""
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 1})
        sidecar = await kubelet.sidecar(TEMPLATE)
        await gateway.warm()
        made = await gateway.made()
        assert await gateway.run(made["id"], "echo webhook") == "webhook\n"
        instance = gateway.gateway.backend.instance(sidecar.instance_id)
        assert instance is not None
        assert instance.address == f"{sidecar.ip}:8700"


async def test_an_instance_is_known_by_its_pod_alone(world: World) -> None:
    """Its sidecar tells nobody anything."""
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        kubelet.webhook = None
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        assert await gateway.run(made["id"], "echo watch") == "watch\n"
        await kubelet.until(lambda: kubelet.of_pod(instance))


async def test_a_new_gateway_finds_what_an_earlier_one_left(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        for _ in range(2):
            await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm(2)
        made = await gateway.made(labels=["kept"])
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
    async with world.gateway("another") as gateway:
        assert await gateway.run(made["id"], "echo found") == "found\n"
        assert (await gateway.get(made["id"]))["labels"] == ["kept"]
        await gateway.warm()
        assert (await gateway.made())["poolHit"] is True


@pytest.mark.parametrize("cold", [False, True])
async def test_a_new_gateway_knows_what_ended_before_it_came(world: World, cold: bool) -> None:
    """As does one that was there and had not heard of the sandbox before its end."""
    kubelet = world.kubelet
    async with world.gateway("a") as one:
        if not cold:
            await kubelet.pod(TEMPLATE, pool="default")
            await one.warm()
        made = await one.made(name="short", labels=["brief"], secrets={"KEY": "hidden"})
        deleted = await one.client.delete(f"/api/v1/sandbox/{made['id']}")
        assert deleted.status_code == 200, deleted.text
        before = await one.is_ended(made["id"])
        await kubelet.until(lambda: any(each.status.verdict for each in kubelet.sandboxes.values()))
    async with world.gateway("b") as other:
        told = await other.get(made["id"])
        assert (told["status"], told["verdict"]) == ("TERMINATED", "deleted")
        for name in ("name", "labels", "dockerImage", "createdAt", "secrets"):
            assert told[name] == before[name]
        listed = (await other.client.get("/api/v1/sandbox?labels=brief")).json()
        assert [sandbox["id"] for sandbox in listed["sandboxes"]] == [made["id"]]
        gone = await other.client.post(f"/sbx/{made['id']}/exec", json={"command": "true"})
        assert gone.json()["verdict"] == "deleted"


async def test_a_gateway_that_starts_without_an_api_server_hears_of_its_sandboxes(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        port = gateway.gateway.webhook_listener.port
    await asyncio.to_thread(world.server.stop)
    async with world.gateway(backend={"sync_timeout": 0.5}, webhook_port=port) as gateway:
        await until(lambda: gateway.gateway.directory.get(made["id"]))
        assert await gateway.run(made["id"], "echo back") == "back\n"
        assert gateway.gateway.backend.stats()["notes"]


async def test_a_record_that_nobody_wrote_is_written_by_who_hears_the_heartbeat(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        await asyncio.to_thread(world.server.stop)
        made = await gateway.made(labels=["late"])
        port = gateway.gateway.webhook_listener.port
    await asyncio.to_thread(world.server.start)
    async with world.gateway("another", backend={"late_record": 0.0}, webhook_port=port):
        record = await kubelet.until(lambda: kubelet.of_pod(instance), timeout=60)
        assert (record.spec.sandbox_id, record.spec.labels) == (made["id"], ["late"])


async def test_a_warm_pod_that_goes_away_is_offered_to_nobody(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        await kubelet.delete_pod(instance)
        await until(lambda: not len(gateway.gateway.supply.slots.warm))
        assert gateway.gateway.backend.instance(instance) is None


async def test_the_controllers_verdict_is_the_sandboxs(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
        await kubelet.set_status(instance, phase="Failed", reason="Evicted", message="low on memory")
        await kubelet.set_sandbox_status(
            made["id"], phase="Ended", verdict="oom", message="killed by the kernel", exitCode=137
        )
        ended = await gateway.is_ended(made["id"])
        assert (ended["status"], ended["errorType"]) == ("ERROR", "OOM_KILLED")
        assert (await kubelet.record(made["id"])).status.verdict == "oom"


@pytest.mark.parametrize("cold", [False, True])
async def test_a_sandbox_resource_that_is_deleted_ends_its_sandbox_and_stays_away(
    world: World, cold: bool
) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        if not cold:
            await kubelet.pod(TEMPLATE, pool="default")
            await gateway.warm()
        made = await gateway.made()
        [(name, _)] = await kubelet.until(
            lambda: [item for item in kubelet.sandboxes.items() if item[1].spec.belongs_to == made["id"]]
        )
        await kubelet.client.request("DELETE", paths.sandboxes(world.namespace, name))
        ended = await gateway.is_ended(made["id"])
        assert (ended["status"], ended["verdict"]) == ("TERMINATED", "deleted")
        await until(lambda: not kubelet.sidecars)
        await gateway.gateway.backend._records.flush(timeout=10)
        assert not world.server.call("GET", paths.sandboxes(world.namespace))["items"]


async def test_a_sandbox_resource_that_is_deleted_while_no_controller_runs_ends_its_sidecar(
    world: World,
) -> None:
    kubelet = world.kubelet
    kubelet.controls = False
    kubelet.webhook = None  # a heartbeat's answer would end it as well, later
    async with world.gateway() as gateway:
        pod = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        record = await kubelet.until(lambda: kubelet.of_pod(pod))
        await kubelet.client.request("DELETE", paths.sandboxes(world.namespace, record.metadata.name))
        assert (await gateway.is_ended(made["id"]))["verdict"] == "deleted"
        async with asyncio.timeout(30):
            assert await kubelet.sidecars[pod].wait() == 0


@pytest.mark.parametrize("heard_by", ["its own", "the other"])
async def test_a_short_life_is_told_by_a_gateway_that_never_saw_it(world: World, heard_by: str) -> None:
    """Its sidecar tells one gateway of its end, which may be the one that does not know whose it was."""
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        kubelet.webhook = one.webhook if heard_by == "its own" else other.webhook
        for _ in range(5):
            await kubelet.pod(TEMPLATE, pool="default")
            await one.warm()
            await other.warm()
            made = await one.made(timeout_seconds=2)
            assert made["poolHit"] is True
            for gateway in (other, one):
                told = await gateway.is_ended_somehow(made["id"])
                assert (told["status"], told["verdict"]) == ("TIMEOUT", "deadline"), told
            sandbox_id = made["id"]
            verdict = await kubelet.until(lambda key=sandbox_id: kubelet.sandboxes[key].status.verdict)
            assert verdict == "deadline"


async def test_what_another_gateway_has_claimed_is_not_ended_by_one_that_never_heard_of_the_claim(
    world: World,
) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        kubelet.webhook = None
        pod = await kubelet.pod(TEMPLATE, pool="default")
        await one.warm()
        await other.warm()
        sidecar = kubelet.sidecars[pod]
        made = await one.made()
        # Before the other gateway can ask it whose it is now.
        sidecar.signal(signal.SIGSTOP)
        try:
            await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
            answer = await other.client.post(
                other.webhook, **sidecar.word("ended", phase="ended", verdict="deadline")
            )
            assert answer.status_code == 200, answer.text
            await until(lambda: other.gateway.backend.instance(pod) is None)
            await other.gateway.backend._records.flush(timeout=10)
        finally:
            sidecar.signal(signal.SIGCONT)
        assert (await one.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "deleted"
        assert (await other.is_ended_somehow(made["id"]))["verdict"] == "deleted"


async def test_what_is_claimed_while_a_slow_sidecar_is_asked_to_end_is_not_given_up(world: World) -> None:
    """A start that is overdue comes up in that moment: the end that was asked for must not be its new owner's."""
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        pod = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        backend, sidecar = gateway.gateway.backend, kubelet.sidecars[pod]
        slots, instance = gateway.gateway.supply.slots, backend.instance(pod)
        assert slots.discard(pod)
        slots.gone(pod)
        sidecar.signal(signal.SIGSTOP)
        try:
            giving_up = asyncio.create_task(backend.destroy(pod))
            await loop_turns()
            assert slots.heard_owned(instance, 1, made["id"]) is Heard.NEWS
            await asyncio.wait_for(giving_up, 60)
        finally:
            sidecar.signal(signal.SIGCONT)
        await backend._records.flush(timeout=10)
        told = (await gateway.client.get(f"/api/v1/sandbox/{made['id']}")).json()
        assert (told["status"], told.get("verdict")) == ("RUNNING", None), told
        assert (await kubelet.record(made["id"])).status.verdict is None


async def test_what_comes_up_while_it_is_asked_to_end_in_vain_stays_on_offer(world: World) -> None:
    """Whoever is offered it may have sent a claim that is not answered yet."""
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        pod = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        backend, sidecar = gateway.gateway.backend, kubelet.sidecars[pod]
        instance = backend.instance(pod)
        assert instance is not None
        assert gateway.gateway.supply.shed("default") == pod  # as of one that is still on its way
        with socket.create_server(("127.0.0.1", 0)) as silent:
            instance.address = f"127.0.0.1:{silent.getsockname()[1]}"
            giving_up = asyncio.create_task(backend.destroy(pod))
            await loop_turns()
            word = sidecar.word("ready", phase="warm", address=sidecar.config["listen"])
            told = await gateway.client.post(gateway.webhook, **word)
            assert told.status_code == 200, told.text
            await asyncio.wait_for(giving_up, 60)
        made = await gateway.made()
        assert gateway.gateway.supply.slots.owner(pod) == made["id"]
        await backend._records.flush(timeout=10)
        assert (await kubelet.record(made["id"])).status.verdict is None


async def test_what_another_gateway_has_started_for_its_own_create_is_left_to_it_for_a_while(
    world: World,
) -> None:
    kubelet = world.kubelet
    async with world.gateway(backend={"claimed_within": 3.0}) as gateway:
        instance = new_instance_id()
        body = sandbox_body(
            instance,
            {"template": TEMPLATE, "state": "Started", "madeFor": "sb-of-another", "tenant": "alpha"},
        )
        client = KubeClient(world.server.access(namespace=world.namespace))
        try:
            await client.request("POST", paths.sandboxes(world.namespace), body=body)
        finally:
            await client.close()
        sidecar = await until(lambda: kubelet.sidecars.get(instance))
        backend = gateway.gateway.backend
        await until(
            lambda: backend._records.recorded.is_made_for_one(instance) and backend._instances.get(instance)
        )
        told = await gateway.client.post(gateway.webhook, **sidecar.word("ready", phase="warm"))
        assert told.status_code == 200, told.text
        assert len(gateway.gateway.supply.slots.warm) == 0
        await gateway.warm()  # that gateway seems to be gone


async def test_a_pod_whose_end_nobody_explains_is_lost_all_the_same(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway(backend={"verdict_wait": 0.3}) as gateway:
        kubelet.webhook = None
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
        await kubelet.set_status(instance, phase="Failed", reason="Evicted", message="low on memory")
        ended = await gateway.is_ended(made["id"])
        assert (ended["status"], ended["errorType"]) == ("ERROR", "EVICTED")
        told = await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict)
        assert told == "evicted"


async def test_the_end_of_a_pod_brings_back_no_sandbox_resource_that_was_removed(world: World) -> None:
    """As after a retention that is shorter than the pod takes to end."""
    kubelet = world.kubelet
    kubelet.controls = False
    async with world.gateway(backend={"verdict_wait": 0.2}) as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict)
        world.server.call("DELETE", paths.sandboxes(world.namespace, made["id"]))
        await kubelet.until(lambda: not kubelet.sandboxes)
        await kubelet.delete_pod(instance)
        await until(lambda: not gateway.gateway.backend.stats()["instances"])
    # The gateway has written what it wanted to write.
    assert world.server.call("GET", paths.sandboxes(world.namespace))["items"] == []


async def test_an_image_that_cannot_be_pulled_is_told_to_the_caller(world: World) -> None:
    kubelet = world.kubelet
    kubelet.make_cold = False
    async with world.gateway() as gateway:
        creating = asyncio.create_task(gateway.create())
        [name] = await kubelet.until(lambda: list(kubelet.sandboxes))
        await kubelet.set_sandbox_status(name, phase="Ended", verdict="image_pull", message="no such image")
        answer = (await creating).json()
        assert (answer["status"], answer["errorType"]) == ("ERROR", "IMAGE_PULL_FAILED")
        assert "no such image" in answer["errorMessage"]


async def test_what_the_api_server_refuses_is_a_422_with_the_field(world: World) -> None:
    async with world.gateway() as gateway:
        host = await gateway.create(docker_image="host")
        assert (host.status_code, host.json()["errors"][0]["param"]) == (422, "docker_image"), host.text
        spaces = await gateway.create(docker_image="no image")
        assert (spaces.status_code, spaces.json()["errors"][0]["param"]) == (422, "docker_image"), spaces.text


@pytest.mark.parametrize("image", ["/no/such/directory", "no such:image", "name/UPPER", "host"])
async def test_an_image_that_no_registry_can_have_is_refused_at_once(world: World, image: str) -> None:
    async with world.gateway("a") as gateway:
        answer = await gateway.create(docker_image=image)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("docker_image: ")
        checked = await gateway.client.post("/api/v1/template/check-docker-image", json={"image": image})
        assert checked.json()["accessible"] is False
        assert world.kubelet.sandboxes == {}


async def test_a_check_of_an_image_says_whether_anything_has_looked(world: World) -> None:
    async with world.gateway() as gateway:
        path, body = "/api/v1/template/check-docker-image", {"image": IMAGE}
        unknown = (await gateway.client.post(path, json=body)).json()
        assert (unknown["accessible"], unknown["checked"]) == (True, False)
        assert "not checked" in unknown["details"]
        await world.kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        known = (await gateway.client.post(path, json=body)).json()
        assert (known["accessible"], known["checked"]) == (True, True)


async def test_a_cold_start_nobody_waits_for_any_more_is_taken_away(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway(spare_seconds=0.2) as gateway:
        answer = await gateway.create(wait_seconds=0)
        await kubelet.until(lambda: kubelet.sandboxes)
        await gateway.client.delete(f"/api/v1/sandbox/{answer.json()['id']}")
        # That of the promise stays for a while, ended.
        await kubelet.until(lambda: list(kubelet.sandboxes) == [answer.json()["id"]])
        assert (await kubelet.record(answer.json()["id"])).status.verdict == "deleted"
        await until(lambda: not kubelet.sidecars)


def pool_fields() -> dict[str, Any]:
    fields = {name: value for name, value in FIELDS.items() if name != "docker_image"}
    return {"image": IMAGE, **fields}


async def test_pools_are_resources(world: World) -> None:
    path = paths.pools(world.namespace, "default")
    async with world.gateway() as gateway:
        put = await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 3})
        assert put.status_code == 200, put.text
        spec = world.server.call("GET", path)["spec"]
        assert (spec["size"], spec["template"]["image"], spec["template"]["memory"]) == (3, IMAGE, 256 << 20)
        # What the gateway cannot say was said with kubectl, and stays.
        its = {"runtimeClass": "gvisor", "gpuCount": 2, "gpuType": "H100"}
        change = {"spec": {"size": None, "minSize": 1, "maxSize": 9, "template": its}}
        world.server.call("PATCH", path, change, content_type="application/merge-patch+json")
        backend = gateway.gateway.backend
        await until(lambda: backend.pools()[0].spec.template.runtime_class == "gvisor")
        assert backend.pools()[0].spec.size == 1
        again = await gateway.client.put("/api/v1/pools/default", json={"memory_gb": 1})
        assert again.status_code == 200, again.text
        told = again.json()
        assert (told["min_size"], told["max_size"], told["gpu_count"], told["gpu_type"]) == (1, 9, 2, "H100")
        kept = {**its, "image": IMAGE, "memory": 1 << 30, "pids": 256}
        spec = world.server.call("GET", path)["spec"]
        assert (spec.get("size"), spec["minSize"], spec["maxSize"]) == (None, 1, 9)
        assert {name: spec["template"][name] for name in kept} == kept
        assert (await gateway.client.put("/api/v1/pools/default", json={})).status_code == 200
        assert world.server.call("GET", path)["spec"] == spec
        # A size that is said is one; it ends autoscaling, also when it is what the pool has by chance.
        fixed = await gateway.client.put("/api/v1/pools/default", json={"size": 1})
        assert (fixed.json()["size"], fixed.json()["min_size"], fixed.json()["max_size"]) == (1, None, None)
        spec = world.server.call("GET", path)["spec"]
        assert (spec["size"], "minSize" in spec, "maxSize" in spec) == (1, False, False)
        assert {name: spec["template"][name] for name in kept} == kept
        assert "owner" not in spec
        given = await gateway.client.put(
            "/api/v1/pools/default", json={"image": IMAGE, "size": 2, "owner": "a.b"}
        )
        assert given.json()["owner"] == world.server.call("GET", path)["spec"]["owner"] == "a.b", given.text
        made = {**pool_fields(), "size": 0, "owner": "t"}
        assert (await gateway.client.put("/api/v1/pools/owned", json=made)).json()["owner"] == "t"
        assert (await gateway.client.delete("/api/v1/pools/owned")).status_code == 200
        bad = await gateway.client.put("/api/v1/pools/Bad_Name", json={**pool_fields(), "size": 1})
        assert (bad.status_code, bad.json()["errors"][0]["param"]) == (422, "name"), bad.text
        assert (await gateway.client.delete("/api/v1/pools/default")).status_code == 200
        assert (await gateway.client.delete("/api/v1/pools/default")).status_code == 404
        assert gateway.gateway.backend.pools() == []


async def test_a_pool_that_the_watch_does_not_show_yet_is_changed_as_it_is(world: World) -> None:
    path = paths.pools(world.namespace, "default")
    async with world.gateway(api_keys="key:alpha::operate,key-b:beta") as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 3, "owner": "beta"})
        pools = gateway.gateway.backend._pools  # the cache, as a watch that is behind leaves it
        stale = pools._pools["default"]
        change = {"spec": {"owner": "alpha", "template": {"pids": 64}}}
        world.server.call("PATCH", path, change, content_type="application/merge-patch+json")
        await until(lambda: pools.spec("default").owner == "alpha")
        pools.changed(stale)
        taken = await gateway.client.put(
            "/api/v1/pools/default", json={"size": 0}, headers={"Authorization": "Bearer key-b"}
        )
        assert (taken.status_code, taken.json()["errors"][0]["param"]) == (403, "name"), taken.text
        pools.deleted(stale)
        put = await gateway.client.put("/api/v1/pools/default", json={"image": IMAGE, "size": 4})
        assert (put.status_code, put.json()["pids"], put.json()["owner"]) == (200, 64, "alpha"), put.text
        world.server.call("DELETE", path)
        await until(lambda: pools.spec("default") is None)
        pools.changed(stale)
        gone = await gateway.client.put("/api/v1/pools/default", json={"memory_gb": 1})
        assert (gone.status_code, gone.json()["errors"][0]["param"]) == (422, "size"), gone.text


async def test_without_an_api_server_pools_cannot_be_changed(world: World) -> None:
    async with world.gateway() as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 0})
        await asyncio.to_thread(world.server.stop)
        for answer in (
            await gateway.client.put("/api/v1/pools/default", json={"size": 1}),
            await gateway.client.put("/api/v1/pools/new", json={**pool_fields(), "size": 1}),
            await gateway.client.delete("/api/v1/pools/default"),
        ):
            assert answer.status_code == 503, answer.text
            assert "API server" in answer.text
            assert int(answer.headers["retry-after"]) >= 1


async def test_a_pools_runtime_class_is_that_of_its_sandboxes(world: World) -> None:
    kubelet = world.kubelet
    template = Template(
        **{**{n: getattr(TEMPLATE, n) for n in TEMPLATE.__struct_fields__}, "runtime_class": "gvisor"}
    )
    async with world.gateway() as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 1})
        change = {"spec": {"template": {"runtimeClass": "gvisor"}}}
        path = paths.pools(world.namespace, "default")
        world.server.call("PATCH", path, change, content_type="application/merge-patch+json")
        await until(lambda: gateway.gateway.backend.pools()[0].spec.template.runtime_class)
        await kubelet.pod(template, pool="default")
        await gateway.warm()
        answer = await gateway.client.post("/api/v1/sandbox", json={"pool": "default", "wait_seconds": 20})
        assert answer.json()["poolHit"] is True, answer.text


async def test_an_idempotency_key_holds_at_every_gateway_and_after_the_end_of_the_first(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as first:
        for _ in range(3):
            await kubelet.pod(TEMPLATE, pool="default")
        await first.warm(3)
        made = await first.made(idempotency_key="one")
        # Its sidecar tells the key to whoever learns of the sandbox by its record.
        async with world.gateway("b") as second:
            await until(lambda: second.gateway.directory.get(made["id"]))
            again = await second.made(idempotency_key="one")
            assert (again["id"], again["poolHit"]) == (made["id"], True)
            assert (await second.made(idempotency_key="two"))["id"] != made["id"]
            later = await first.made(idempotency_key="three")
            await until(lambda: second.gateway.directory.get(later["id"]))
            assert (await second.made(idempotency_key="three"))["id"] == later["id"]
    # One that starts later reads it from the sidecars before it takes requests.
    async with world.gateway("c") as third:
        assert (await third.made(idempotency_key="one"))["id"] == made["id"]
    records = world.server.call("GET", paths.sandboxes(world.namespace))["items"]
    owners = [one["spec"]["sandboxId"] for one in records if "verdict" not in one.get("status", {})]
    assert len(owners) == len(set(owners)) == 3


@pytest.mark.parametrize("promised", [False, True])
async def test_the_end_of_a_claim_that_is_given_back_is_not_the_sandboxs(
    world: World, monkeypatch: pytest.MonkeyPatch, promised: bool
) -> None:
    """The pod of the lost claim stood in the sandbox's record, with its end; the one in use had none."""
    kubelet = world.kubelet
    async with world.gateway("a") as a, world.gateway("b") as b:
        first = await kubelet.pod(TEMPLATE, pool="default")
        await a.warm(1)
        accepted, lose = asyncio.Event(), asyncio.Event()
        claim = a.gateway.sidecars.claim

        async def claim_and_lose(instance: Instance, body: dict[str, Any]) -> ClaimAnswer:
            answer = await claim(instance, body)
            if instance.id != first:
                return answer
            accepted.set()
            await lose.wait()
            return ClaimAnswer("uncertain", {})

        async def no_room(*_: Any, **__: Any) -> Instance:
            raise Unavailable("no room", retry_after=60.0)

        monkeypatch.setattr(a.gateway.sidecars, "claim", claim_and_lose)
        monkeypatch.setattr(a.gateway.backend, "launch", no_room)
        creating = asyncio.create_task(a.create(wait_seconds=0 if promised else 25))
        await asyncio.wait_for(accepted.wait(), 60)
        [sandbox] = a.gateway.directory.live()
        await until(lambda: b.gateway.directory.get(sandbox.id))
        lose.set()
        assert await asyncio.wait_for(kubelet.sidecars[first].wait(), 60) == 0
        second = await kubelet.pod(TEMPLATE, pool="default")
        assert (await creating).json()["id"] == sandbox.id
        await until(lambda: sandbox.status == "RUNNING")
        record = await kubelet.until(lambda: kubelet.of_pod(second))
        assert (record.spec.sandbox_id, record.status.verdict) == (sandbox.id, None)
        assert kubelet.of_pod(first) is None
        seen = await until(lambda: b.gateway.directory.get(sandbox.id))
        await until(lambda: (seen.status, seen.instance_id) == ("RUNNING", second))
