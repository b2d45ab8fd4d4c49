"""A stub sidecar beside a real one: the gateway's calls get the same statuses and fields, and it the same webhooks."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandlot_contract.ids import InstanceId
from sandlot_gateway.tokens import Tokens

from loadtests.cluster.one_address import has_sidecar
from loadtests.cluster.stub_pods import StubPods
from tests.ports import free_port
from tests.roots import make_root
from tests.sidecar.support import Sidecar, plain_client
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN, Receiver, proof
from tests.waiting import until

OWNER, NEXT = "sst_first", "sst_next"
INSTANCE = "i-00000000000000aa"
# Fields whose values are the same, too; of all others the names.
SAME = {
    "bound_to", "claim", "detached", "equal", "error", "exit_code", "field", "generation", "image", "meta", "op_id",
    "ops_running", "phase", "sandbox_id", "signal", "state", "stderr", "stdout", "template", "total", "uses", "verdict",
}  # fmt: skip
TEMPLATE = "t-test"
IMAGE = {"id": "sha256:one", "env": {"OF_IMAGE": "a"}, "workdir": "/etc", "user": None}
OF_THE_RECEIVER = {"headers", "signed", "received_at", "answered"}


def claim(**fields: Any) -> dict[str, Any]:
    """The body that a gateway sends."""
    return {
        "sandbox_id": "sb-test", "token": OWNER, "tenant": "tenant-a", "env": {"A": "b"}, "secrets": {},
        "limits": {"cpu": 1.0, "memory": 512 << 20, "pids": 128, "disk": 64 << 20}, "network": "none", "egress": None,
        "timeout": 3600.0, "idle_timeout": None, "workdir": None, "user": None, "start_command": None,
        "stop_signal": None, "stop_grace": None, "meta": {"name": "x"}, "restore": False, "image": None, "services": None,
        "generation": 1, **fields,
    }  # fmt: skip


def shape(value: Any, name: str = "") -> Any:
    """Names of fields, and values of those in SAME."""
    match value:
        case dict() if name != "meta":
            return {key: shape(one, key) for key, one in sorted(value.items())}
        case list() if name != "notes":
            return [shape(one) for one in value]
        case _:
            return value if name in SAME else None


@dataclass
class Asked:
    """One sidecar, and what it answered so far."""

    client: httpx.AsyncClient
    token: str
    webhooks: Receiver
    rootfs: str  # the directory of an image
    like: Asked | None = None  # one that answered the same requests before
    answers: list[tuple[str, int, Any, dict[str, str]]] = field(default_factory=list)

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, op: str | None = None
    ) -> httpx.Response:
        headers = {
            "Authorization": f"Bearer {token or self.token}",
            **({} if op is None else {"X-Sandlot-Op": op}),
        }
        return await self.client.request(method, path, json=body, headers=headers)

    async def note(self, what: str, asked: Awaitable[httpx.Response]) -> None:
        answer = await asked
        told = {
            name: value
            for name, value in answer.headers.items()
            if name.startswith("x-sandlot-") or name in ("retry-after", "www-authenticate")
        }
        self.answers.append((what, answer.status_code, shape(answer.json()), told))
        if self.like is not None:  # at once: what comes next might wait for what never happens
            assert self.answers[-1] == self.like.answers[len(self.answers) - 1]

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> None:
        what = f"{method} {path} {body}".replace(self.rootfs, "the image's directory")
        await self.note(what, self.ask(method, path, body, **options))

    async def exec(self, command: str, *, op: str, token: str = OWNER) -> None:
        await self.call("POST", "/v1/exec", {"command": command}, token=token, op=op)

    async def until_running(self, count: int) -> None:
        async def runs() -> bool:
            return (await self.ask("GET", "/v1/state")).json()["ops_running"] == count

        await until(runs)

    def told(self) -> dict[str, Any]:
        """The kinds of webhooks, each with its template and the names of its fields and headers."""
        return {
            event["event"]: (event["template"], event.keys(), {name.lower() for name in event["headers"]})
            for event in self.webhooks.events
        }

    def end(self) -> Any:
        """The webhook of the end."""
        ends = [event for event in self.webhooks.events if event["event"] == "ended"]
        return shape({name: value for name, value in ends[0].items() if name not in OF_THE_RECEIVER})


@asynccontextmanager
async def real() -> AsyncIterator[Asked]:
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as images:
        rootfs = make_root(Path(images), "one")
        sidecar = Sidecar(template=TEMPLATE, root={"images": images})
        try:
            await sidecar.start()
            yield Asked(sidecar.client, INSTANCE_TOKEN, sidecar.webhooks, str(rootfs))
        finally:
            await sidecar.close()


@asynccontextmanager
async def stub() -> AsyncIterator[Asked]:
    token = Tokens(b"m" * 32).instance(InstanceId(INSTANCE))
    webhooks = Receiver("", host="127.0.0.1")
    webhooks.proof = proof(token)
    await webhooks.start()
    pods = StubPods(master=b"m" * 32, gateway=f"http://127.0.0.1:{webhooks.port}/internal/sidecar")
    port = free_port()
    try:
        async with (
            pods.listening(port, host="127.0.0.1"),
            plain_client(None, f"http://127.0.0.1:{port}", timeout=60.0) as client,
        ):
            pods.know(InstanceId(INSTANCE), template=TEMPLATE)
            pods.ready(InstanceId(INSTANCE), "127.0.0.1")
            pods.ready(InstanceId(INSTANCE), "127.0.0.1")
            await webhooks.wait("ready")
            yield Asked(client, token, webhooks, "/var/lib/sandlot/images/one/rootfs")
    finally:
        await webhooks.stop()


async def life(box: Asked) -> None:
    """All that a gateway and a controller ask of a sidecar in three generations."""
    image = {**IMAGE, "lower": [box.rootfs]}
    await box.call("GET", "/v1/state")
    await box.call("GET", "/v1/nothing")
    await box.call("GET", "/v1/commands?of=sb-test&last=100")
    await box.call("POST", "/v1/use")
    await box.call("POST", "/v1/claim", claim(generation=7))
    await box.call("POST", "/v1/claim", claim(image=image))
    await box.call("POST", "/v1/claim", claim(image=image))
    await box.call("POST", "/v1/claim", claim())
    await box.call("POST", "/v1/claim", claim(sandbox_id="sb-other", token="sst_other"))
    await box.call("POST", "/v1/claim", claim(sandbox_id="sb-other", token="sst_other", tenant="tenant-b"))
    await box.call("GET", "/v1/state", token=OWNER)
    await box.call("GET", "/v1/nothing", token=OWNER)
    await box.call("POST", "/v1/end", {"verdict": "deleted"}, token=OWNER)
    await box.call("POST", "/v1/end", {"verdict": "deleted", "only_of": "sb-other"})
    await box.call("POST", "/v1/use", token=OWNER)
    await box.call("POST", "/v1/use")
    await box.exec("true", op="op-1")
    await box.exec("true", op="op-1")
    await box.exec("false", op="op-1")
    # Whichever comes later attaches.
    async with asyncio.TaskGroup() as group:
        request = {"command": "sleep 0.2"}
        callers = [
            group.create_task(box.ask("POST", "/v1/exec", request, token=OWNER, op="op-2")) for _ in range(2)
        ]
        for caller in callers:
            await box.note("one of two callers", caller)
    await box.call("GET", "/v1/commands?of=sb-test&last=100")
    await box.call("GET", "/v1/commands?of=sb-other&last=100")
    await box.call("POST", "/v1/end", {"verdict": "deleted", "only_unclaimed": True})
    await box.call("POST", "/v1/end", {"verdict": "deleted", "only_unused": True})
    await box.webhooks.wait("claimed")
    await box.call("POST", "/v1/reset", {"keep_claim": True})
    await box.call("GET", "/v1/commands?of=sb-test&last=100")
    await box.call("POST", "/v1/reset", {"keep_claim": False, "generation": 7})
    await box.call("POST", "/v1/reset", {"keep_claim": False, "generation": 1})
    await box.webhooks.wait("ready", count=3)
    await earlier_owner(box)
    await box.call("POST", "/v1/claim", claim(token=NEXT, tenant="tenant-b", generation=2))
    await box.call("POST", "/v1/claim", claim(sandbox_id="sb-next", token=NEXT, generation=2, restore=True))
    await earlier_owner(box)
    await box.exec("true", op="op-3", token=NEXT)  # not before the files are there
    await box.call("POST", "/v1/reset", {"keep_claim": False, "generation": 2})
    await box.webhooks.wait("ready", count=4)
    await box.call("POST", "/v1/claim", claim(sandbox_id="sb-next", token=NEXT, generation=3))
    await box.call("POST", "/v1/end", {"verdict": "deleted", "only_unclaimed": True, "after_owner": True})
    await box.call("POST", "/v1/reset", {"keep_claim": False, "generation": 3})
    async with asyncio.TaskGroup() as group:
        request = {"command": "sleep 50"}
        held = group.create_task(box.ask("POST", "/v1/exec", request, token=NEXT, op="op-4"))
        await box.until_running(1)
        box.webhooks.answering.clear()  # until the end is acknowledged, the process goes on
        try:
            await after_the_end(box, held)
        finally:
            box.webhooks.answering.set()


async def earlier_owner(box: Asked) -> None:
    await box.exec("true", op="op-3")
    for method, path in (
        ("GET", "/v1/state"),
        ("POST", "/v1/use"),
        ("POST", "/v1/reset"),
        ("GET", "/v1/nothing"),
    ):
        await box.call(method, path, token=OWNER)


async def after_the_end(box: Asked, held: Awaitable[httpx.Response]) -> None:
    await box.call("POST", "/v1/end", {"verdict": "deleted", "message": "why", "only_of": "sb-next"})
    await box.note("the command that ran", held)
    await box.call("POST", "/v1/end", {"verdict": "deadline"})
    await box.call("POST", "/v1/claim", claim(generation=3))
    await box.call("POST", "/v1/reset", {"keep_claim": False, "generation": 3})
    await box.exec("true", op="op-5", token=NEXT)
    await box.call("GET", "/v1/state")
    await box.webhooks.wait("ended")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a real sidecar needs root")
async def test_a_stub_answers_and_tells_as_a_real_sidecar() -> None:
    async with real() as one, stub() as other:
        await life(one)
        other.like = one
        await life(other)
    assert len(other.answers) == len(one.answers)
    assert other.told() == one.told()
    assert one.told().keys() == {"ready", "claimed", "ended"}
    assert other.end() == one.end()


def test_each_address_is_of_one_process() -> None:
    assert [has_sidecar("127.3.2.1", port, (8701, 8702)) for port in (8701, 8702)] == [False, True]
    assert [has_sidecar("127.3.2.4", port, (8701, 8702)) for port in (8701, 8702)] == [True, False]
