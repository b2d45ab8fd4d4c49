"""Records of Sandbox resources before an API server that gives scripted answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.known import Known
from sandlot_gateway.backends.kubernetes.records import Records
from sandlot_gateway.core.owners import Claim, PendingCreate
from sandlot_kube.ends import Ended
from sandlot_kube.objects import Metadata, Sandbox, SandboxPhase, SandboxSpec, SandboxStatus
from sandlot_kube.template import Template as KubeTemplate

from tests.kube.scripted import Answer, answered, failed, scripted

POD = "i-0123456789abcdef"
TEMPLATE = Template("python:3.12", memory=256 << 20)
CLAIM = Claim("sb-0", "alpha", at=1000.0, labels=("one",))
END = Ended("deleted", "2026-01-01T12:00:30Z", message="enough")
PENDING = PendingCreate("sb-0", "alpha", TEMPLATE, labels=("one",), request={})
COLLECTION = "/apis/sandlot.dev/v1alpha1/namespaces/boxes/sandboxes"


@asynccontextmanager
async def writing(
    *answers: Answer, refused: Callable[[str], None] = lambda what: None
) -> AsyncIterator[tuple[Records, list[tuple[str, str, Any]], list[Known]]]:
    """Records before a server with these answers; what it was sent, and what the records told."""
    sent: list[tuple[str, str, Any]] = []
    seen: list[Known] = []
    async with scripted() as (script, client):

        def kept(answer: Answer) -> Answer:
            async def keep(request: web.Request) -> web.StreamResponse:
                body = await request.read()
                sent.append((request.method, request.path, json.loads(body) if body else None))
                return await answer(request)

            return keep

        script.lists = [kept(answer) for answer in answers]
        records = Records(
            client,
            namespace="boxes",
            seen=seen.append,
            refused=refused,
            shortest_wait=0.01,
            longest_wait=0.02,
        )
        yield records, sent, seen
        await records.close(timeout=5.0)
        assert not script.lists, "not all answers were asked for"


def resource(name: str, *, pod: str | None, uid: str = "", **spec: Any) -> Sandbox:
    return Sandbox(
        metadata=Metadata(name=name, uid=uid),
        spec=SandboxSpec(template=KubeTemplate("a"), pod_name=pod, **spec),
    )


def ended(sandbox: Sandbox) -> Sandbox:
    """The same after the controller has ended it."""
    status = SandboxStatus(phase=SandboxPhase.ENDED, verdict="oom", ended_at=END.at)
    return msgspec.structs.replace(sandbox, status=status)


def found(sandbox: Sandbox) -> Answer:
    return answered(200, msgspec.to_builtins(sandbox))


def methods(sent: list[tuple[str, str, Any]]) -> list[tuple[str, str]]:
    return [(method, path.removeprefix(COLLECTION)) for method, path, _ in sent]


CREATED = answered(201, {})
CHANGED = answered(200, {})
CONFLICT = failed(409, "AlreadyExists")
MISSING = failed(404, "NotFound")
TOO_LATE = answered(422, {"reason": "Invalid", "message": "status: an end stays as it was first told"})
