"""Changes of one object as it was read, while other clients change it, too."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sandlot_kube.changes import Contended, Instead, change
from sandlot_kube.errors import KubeError

from tests.kube.scripted import Answer, answered, failed

MAPS = "/api/v1/namespaces/default/configmaps"
CONFLICT, MISSING = failed(409, "Conflict"), failed(404, "NotFound")


def stored(count: int, *, version: int) -> Answer:
    return answered(200, {"metadata": {"name": "a", "resourceVersion": str(version)}, "data": {"n": count}})


async def one_more(there: bytes | None) -> dict[str, Any]:
    count = 0 if there is None else msgspec.json.decode(there)["data"]["n"]
    return {"metadata": {"name": "a"}, "data": {"n": count + 1}}


async def deleted(there: bytes | None) -> Instead:
    return Instead.DELETED


def sent(script) -> list[tuple[str, str]]:
    return [(request.method, request.path) for request in script.requests]


async def test_what_another_client_changed_is_read_and_changed_again(server_and_client) -> None:
    script, client = server_and_client
    bodies: list[dict[str, Any]] = []

    async def taken(request):
        bodies.append(await request.json())
        return await stored(9, version=9)(request)

    script.lists = [stored(1, version=1), CONFLICT, stored(7, version=4), taken]
    await change(client, MAPS, "a", one_more)
    assert bodies == [{"metadata": {"name": "a", "resourceVersion": "4"}, "data": {"n": 8}}]
    assert sent(script)[-1] == ("PUT", f"{MAPS}/a")


async def test_what_another_client_deleted_is_made_anew(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [stored(1, version=1), MISSING, MISSING, stored(1, version=5)]
    await change(client, MAPS, "a", one_more)
    assert sent(script) == [("GET", f"{MAPS}/a"), ("PUT", f"{MAPS}/a"), ("GET", f"{MAPS}/a"), ("POST", MAPS)]


async def test_only_what_was_read_is_deleted(server_and_client) -> None:
    script, client = server_and_client
    bodies: list[dict[str, Any]] = []

    async def gone(request):
        bodies.append(await request.json())
        return await answered(200, {})(request)

    script.lists = [stored(1, version=3), gone]
    await change(client, MAPS, "a", deleted)
    assert bodies == [{"preconditions": {"resourceVersion": "3"}}]
    script.lists = [MISSING]
    await change(client, MAPS, "a", deleted)
    assert len(script.requests) == 3


async def test_it_ends_if_others_are_faster_each_time_or_the_write_is_refused(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [stored(1, version=1), CONFLICT] * 5
    with pytest.raises(Contended, match="5 times"):
        await change(client, MAPS, "a", one_more)
    script.lists = [MISSING, MISSING]  # no such namespace
    with pytest.raises(KubeError) as caught:
        await change(client, MAPS, "a", one_more)
    assert caught.value.status == 404
