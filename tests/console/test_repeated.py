"""Answers that have a sandbox twice, as when one is created between two of them: no row stays that the last answer lacks."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.console.conftest import Console, OpenPage, sooner
from tests.waiting import wait_until

API = "**/api/v1"


@pytest.fixture
def record(console: Console) -> dict[str, Any]:
    listed = console.client.get("/api/v1/sandbox", params={"status": "RUNNING", "per_page": 1})
    return listed.json()["sandboxes"][0]


def answer(record: dict[str, Any], names: list[str], **fields: Any) -> dict[str, Any]:
    """A list of sandboxes with these names, which are also their ids."""
    return {
        "sandboxes": [{**record, "id": name, "name": name, **fields} for name in names],
        "total": len(names),
        "page": 1,
        "per_page": 50,
        "has_next": False,
    }


def names(page: Any) -> list[str]:
    return page.get_by_role("main").locator("tbody > tr").get_by_role("link").all_inner_texts()


def test_the_overview_shows_each_waiting_sandbox_once(
    console: Console, open_page: OpenPage, record: dict[str, Any]
) -> None:
    stats = console.client.get("/api/v1/stats", params={"usage": "false"}).json()
    stats["sandboxes"]["PENDING"] = 21
    told = [f"waits-{number}" for number in range(21)]  # the newest first
    lists = {"1": told[:20], "2": told[19:]}
    page = open_page("#/pools")
    page.route(f"{API}/stats?*", lambda route: route.fulfill(json=stats))

    def part(route: Any) -> None:
        (number,) = parse_qs(urlsplit(route.request.url).query)["page"]
        route.fulfill(json=answer(record, lists[number], status="PENDING"))

    page.route(f"{API}/sandbox?*", part)
    page.goto(page.url.replace("#/pools", "#/"))
    wait_until(lambda: names(page) == told[1:])


def test_a_row_that_came_twice_does_not_stay(open_page: OpenPage, record: dict[str, Any]) -> None:
    page = open_page("#/pools")
    lists = [["twice", "once", "twice"], ["once", "twice"], ["last"]]
    page.route(f"{API}/sandbox?*", lambda route: route.fulfill(json=answer(record, lists[0])))
    page.goto(page.url.replace("#/pools", "#/sandboxes"))
    wait_until(lambda: names(page) == lists[0])
    while len(lists) > 1:
        lists.pop(0)
        sooner(page, lambda: names(page) == lists[0])
