"""Sandboxes over E2B's wire that are paused at their timeout."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.e2b.conftest import Box
from tests.e2b.test_pauses import read, write
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

PAUSES: dict[str, Any] = {"autoPause": True, "autoResume": {"enabled": False}}


def detail(client: httpx.Client, box: Box) -> dict[str, Any]:
    answer = client.get(f"/sandboxes/{box.id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def is_paused(client: httpx.Client, box: Box) -> bool:
    return detail(client, box)["state"] == "paused"


def seconds_left(client: httpx.Client, box: Box) -> float:
    return (datetime.fromisoformat(detail(client, box)["endAt"]) - datetime.now(UTC)).total_seconds()


def test_a_sandbox_is_paused_at_its_timeout_and_again_once_it_went_on(
    make_box: Callable[..., Box], client: httpx.Client
) -> None:
    box = make_box(timeout=600, **PAUSES)
    write(box, "/srv/step", "1")
    assert detail(client, box)["lifecycle"] == {"onTimeout": "pause", "autoResume": False}
    assert 500 < seconds_left(client, box) <= 600
    assert client.post(f"/sandboxes/{box.id}/timeout", json={"timeout": 1}).status_code == 204
    wait_until(lambda: is_paused(client, box))
    assert client.post(f"/v2/sandboxes/{box.id}/connect", json={"timeout": 300}).status_code == 201
    assert read(box, "/srv/step") == "1"
    assert 200 < seconds_left(client, box) <= 300
    assert detail(client, box)["lifecycle"]["onTimeout"] == "pause"
    assert client.post(f"/sandboxes/{box.id}/timeout", json={"timeout": 0}).status_code == 204
    wait_until(lambda: is_paused(client, box))
    assert client.delete(f"/sandboxes/{box.id}").status_code == 204
    assert client.get(f"/sandboxes/{box.id}").status_code == 404


def test_a_later_time_keeps_a_sandbox_and_another_gateway_pauses_what_one_left(
    stack: Stack, make_box: Callable[..., Box], client: httpx.Client
) -> None:
    moved, left = make_box(timeout=300, **PAUSES), make_box(timeout=600, **PAUSES)
    assert client.post(f"/v2/sandboxes/{moved.id}/connect", json={"timeout": 600}).status_code == 200
    # It is over while no gateway is there, or before: then the next one has to find the pause.
    assert client.post(f"/sandboxes/{left.id}/timeout", json={"timeout": 1}).status_code == 204
    stack.kill()
    stack.start()
    wait_until(lambda: is_paused(client, left))
    assert not is_paused(client, moved)
    assert 400 < seconds_left(client, moved) <= 600
    assert client.delete(f"/sandboxes/{moved.id}").status_code == 204
    assert client.delete(f"/sandboxes/{left.id}").status_code == 204


def test_a_sandbox_without_it_ends_at_its_timeout(make_box: Callable[..., Box], client: httpx.Client) -> None:
    box = make_box(timeout=1)
    wait_until(lambda: client.get(f"/sandboxes/{box.id}").status_code == 404)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"autoPause": True, "autoResume": {"enabled": True}}, "autoResume"),
        ({"autoPause": True, "timeout": 0}, "timeout"),
        ({"autoPause": True, "timeout": 10**9}, "timeout"),
        ({"autoPause": "yes"}, "autoPause"),
    ],
)
def test_what_cannot_be_is_refused(client: httpx.Client, fields: dict[str, Any], told: str) -> None:
    answer = client.post("/v2/sandboxes", json={"templateID": "base", **fields})
    assert (answer.status_code, told in answer.json()["message"]) == (400, True), answer.text


def test_forks_have_their_own_times(
    stack: Stack, make_box: Callable[..., Box], client: httpx.Client, envd: httpx.Client
) -> None:
    box = make_box(timeout=600, **PAUSES)
    answer = client.post(f"/sandboxes/{box.id}/fork", json={"count": 1, "timeout": 300})
    told = answer.json()[0]["sandbox"]
    fork = Box(told["sandboxID"], told["envdAccessToken"], envd)
    assert (detail(client, fork)["lifecycle"]["onTimeout"], round(seconds_left(client, fork), -2)) == (
        "pause",
        300,
    )
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    url = f"{stack.url}/api/v1/sandbox/{box.id}/fork"
    answer = client.post(url, headers=headers, json={"count": 1, "timeout_seconds": 300})
    assert answer.status_code == 201, answer.text
    other = Box(answer.json()["sandboxes"][0]["id"], "", envd)
    assert (detail(client, other)["lifecycle"]["onTimeout"], round(seconds_left(client, other), -2)) == (
        "kill",
        300,
    )
    for each in (box, fork, other):
        assert client.delete(f"/sandboxes/{each.id}").status_code == 204
