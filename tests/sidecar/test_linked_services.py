"""Services in a claim: what is refused, what a sandbox gets of them, and that the next owner gets none."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from tests.sidecar.conftest import Make
from tests.sidecar.support import Sidecar

pytestmark = pytest.mark.root

SERVICE: dict[str, Any] = {"name": "db", "address": "127.83.0.1", "ports": [5432]}
ITSELF: dict[str, Any] = {"name": "web", "address": "127.0.0.1", "ports": []}
LISTENING = "cat /proc/net/tcp | grep ' 0A ' | cut -d: -f2,3 | sort"


@pytest_asyncio.fixture
async def fresh(make: Make) -> Sidecar:
    """One without an owner."""
    return await make()


@pytest.mark.parametrize(
    "service",
    [
        {**SERVICE, "name": "My_DB"},
        {**SERVICE, "name": "db-"},
        {**SERVICE, "name": ""},
        {**SERVICE, "name": "d" * 64},
        {**SERVICE, "address": "10.0.0.1"},
        {**SERVICE, "address": "127.0.0.256"},
        {**SERVICE, "address": "127.1"},
        {**SERVICE, "ports": [0]},
        {**SERVICE, "ports": [True]},
        {**SERVICE, "ports": list(range(1, 18))},
        {"name": "db"},
        "db",
    ],
    ids=[
        "letters",
        "hyphen",
        "empty",
        "long",
        "far",
        "byte",
        "short",
        "zero",
        "bool",
        "many",
        "part",
        "text",
    ],
)
async def test_services_that_are_none_are_refused(fresh: Sidecar, service: object) -> None:
    body = fresh.claim_body(network="none", services=[service])
    answer = await fresh.instance("POST", "/v1/claim", json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, "services")


async def test_in_the_machines_network_there_are_none(fresh: Sidecar) -> None:
    answer = await fresh.instance("POST", "/v1/claim", json=fresh.claim_body(services=[SERVICE]))
    assert (answer.status_code, answer.json()["field"]) == (400, "network")
    assert (await fresh.claim())["services"] is False


async def test_the_next_owner_finds_neither_names_nor_listeners(fresh: Sidecar) -> None:
    before = (await fresh.instance("GET", "/v1/state")).json()
    assert before["services"] is False
    state = await fresh.claim(network="none", services=[SERVICE, ITSELF])
    assert state["services"] is True
    hosts = (await fresh.exec("head -2 /etc/hosts"))["stdout"].split()
    assert [hosts[0], hosts[1]] == ["127.83.0.1", "db"]
    assert (await fresh.exec("getent hosts web"))["stdout"].split() == ["127.0.0.1", "web"]
    assert "1538" in (await fresh.exec(LISTENING))["stdout"], "5432 in hexadecimal"
    reset = await fresh.instance("POST", "/v1/reset", json={"keep_claim": False})
    assert reset.json()["equal"] is True, reset.text
    assert (await fresh.claim(network="none"))["services"] is False
    assert (await fresh.exec("grep -c service /etc/hosts"))["stdout"] == "0\n"
    assert (await fresh.exec(LISTENING))["stdout"] == ""


async def test_a_restarted_sidecar_links_its_owner_again(fresh: Sidecar) -> None:
    await fresh.claim(network="none", services=[SERVICE])
    await fresh.kill()
    await fresh.start()
    await fresh.reconnect()
    assert "1538" in (await fresh.exec(LISTENING))["stdout"]
    assert (await fresh.exec("getent hosts db"))["stdout"].split() == ["127.83.0.1", "db"]
