"""The console before a gateway with many live sandboxes, of which some come and go meanwhile, in a real browser.

CONSOLE_SANDBOXES=10000 has as many; without it there are fewer, since so many slots take minutes to make.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from loadtests.browser.live_gateway import POOLS, RUNS, TURNOVER, LiveGateway, Size, live_gateway, pool_of
from loadtests.cluster.simulated_cluster import why_not
from tests import plain_http
from tests.console.conftest import API, sooner
from tests.console.pages import OpenPage, pages
from tests.console.test_many import MOST_BYTES, MOST_ELEMENTS
from tests.waiting import wait_until

SANDBOXES = int(os.environ.get("CONSOLE_SANDBOXES", "600"))
PER_PAGE = 50
why = why_not("etcd", "kube-apiserver")
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why), reason=str(why)),
]


@pytest.fixture(scope="module")
def live() -> Iterator[LiveGateway]:
    with live_gateway(Size(sandboxes=SANDBOXES, rate=4.0)) as made:
        yield made
    assert made.lost == []


@pytest.fixture(scope="module")
def client(live: LiveGateway) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {live.api_key}"}
    with plain_http.client(base_url=live.url, headers=headers, timeout=60) as made:
        yield made


@pytest.fixture
def open_page(browser: Any, live: LiveGateway) -> Iterator[OpenPage]:
    with pages(browser, live.url, key=live.api_key) as made:
        yield made.open
    assert made.complaints == []


def number_of(item: Any) -> int:
    """The figure of an entry of the overview, such as `9,998 RUNNING`."""
    found = re.search(r"[\d,]+", item.inner_text())
    return int(found[0].replace(",", "")) if found else 0


def rows(page: Any) -> Any:
    return page.get_by_role("main").locator("tbody > tr")


def shown(page: Any, text: str) -> None:
    page.get_by_role("main").get_by_text(text).first.wait_for()


def create(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post(f"{API}/sandbox", json={"docker_image": POOLS["python"], "pool": "python", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def delete(client: httpx.Client, sandbox_id: str) -> None:
    client.delete(f"{API}/sandbox/{sandbox_id}").raise_for_status()


def test_the_overview_counts_all_and_follows(
    live: LiveGateway, client: httpx.Client, open_page: OpenPage
) -> None:
    page = open_page()
    states = page.get_by_role("listitem")
    running = states.filter(has_text="RUNNING")
    sooner(page, lambda: number_of(running) >= SANDBOXES - 50)
    ended = states.filter(has_text="deleted")
    sooner(page, lambda: ended.count() == 1)
    before = number_of(ended)
    seen = live.events["sandbox.ended"]
    sooner(page, lambda: number_of(ended) > before and live.events["sandbox.ended"] > seen)
    owned = sum(
        int(row.get_by_role("cell").nth(4).inner_text().replace(",", "")) for row in rows(page).all()[-3:]
    )
    assert owned >= SANDBOXES - 50
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS


def test_the_overview_shows_what_waits_and_why(client: httpx.Client, open_page: OpenPage) -> None:
    # No pool has slots of this size, and there is no node for a new one.
    waiting = [
        create(client, name=f"waits-{number}", pool=None, cpu_cores=7, run="late", wait_seconds=0)["id"]
        for number in range(25)
    ]
    oldest = sorted(f"waits-{number}" for number in range(20))
    page = open_page()
    waits = rows(page).filter(has_text="waits-")
    # Of those that come and go, some wait for a moment: the count is theirs, too.
    sooner(page, lambda: sorted(waits.get_by_role("link").all_inner_texts()) == oldest)
    told = page.get_by_text(re.compile(r"Of your \d+ pending sandboxes, the oldest are shown\."))
    sooner(page, told.is_visible)
    first = rows(page).filter(has_text="waits-0")
    assert len(first.get_by_role("cell").last.inner_text()) > 10
    for sandbox_id in waiting[1:]:
        delete(client, sandbox_id)
    sooner(page, lambda: waits.count() == 1)
    delete(client, waiting[0])
    sooner(page, lambda: waits.count() == 0)


def test_filters_and_pages_reach_every_sandbox(
    live: LiveGateway, client: httpx.Client, open_page: OpenPage
) -> None:
    page = open_page("#/sandboxes?run=run-3")
    each = SANDBOXES // RUNS
    shown(page, f"Page 1 of {math.ceil(each / PER_PAGE):,}, {each:,} sandboxes")
    names: set[str] = set()
    while True:
        names |= set(rows(page).get_by_role("link").all_inner_texts())
        older = page.get_by_role("button", name="Older")
        if older.is_disabled():
            break
        place = page.get_by_role("main").get_by_text(re.compile(r"^Page ")).first
        at = place.inner_text()
        older.click()
        wait_until(lambda at=at, place=place: place.inner_text() != at)
    assert names == {f"rollout-{number}" for number in range(3 * each, 4 * each)}
    page.get_by_label("Image contains").fill("ghcr.io/acme")
    page.get_by_role("button", name="Filter").click()
    expected = sum(pool_of(number) == "task" for number in range(3 * each, 4 * each))
    shown(page, f"Page 1 of {math.ceil(expected / PER_PAGE):,}, {expected:,} sandboxes")
    assert all("ghcr.io/acme/task:7" in row for row in rows(page).all_inner_texts())
    made = create(client, name="to-filter", run="one-run")
    delete(client, made["id"])
    page.goto(f"{live.url}/console/#/sandboxes?run=one-run&verdict=deleted")
    page.get_by_role("link", name="to-filter").wait_for()
    assert rows(page).count() == 1
    assert "deleted" in rows(page).inner_text()


def test_the_list_follows_creates_and_ends(client: httpx.Client, open_page: OpenPage) -> None:
    page = open_page("#/sandboxes")
    wait_until(lambda: rows(page).count() == PER_PAGE)
    page.get_by_label("State").focus()
    first = rows(page).first.inner_text()
    sooner(page, lambda: rows(page).first.inner_text() != first)
    # Rows that came and went took nothing from the reader.
    assert page.evaluate("document.activeElement.name") == "status"
    assert rows(page).count() == PER_PAGE
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
    # Of those with this label none comes or goes by itself, and the newest is on top.
    page.goto(page.url + "?labels=grpo")
    made = create(client, name="comes", labels=["grpo"])
    row = rows(page).filter(has=page.get_by_role("link", name="comes", exact=True))
    sooner(page, lambda: row.count() == 1 and "RUNNING" in row.inner_text())
    delete(client, made["id"])
    sooner(page, lambda: "TERMINATED" in row.inner_text())
    assert "deleted" in row.inner_text()
    assert rows(page).count() == PER_PAGE


def test_a_live_sandbox_has_a_timeline_that_goes_on(
    live: LiveGateway, client: httpx.Client, open_page: OpenPage
) -> None:
    made = create(client, name="watched")
    page = open_page(f"#/sandbox/{made['id']}")
    events = page.locator("ol.timeline > li")
    wait_until(lambda: events.count() == 2)
    ran = client.post(f"/sbx/{made['id']}/exec", json={"command": "true", "timeout": 20})
    assert ran.status_code == 200, ran.text
    sooner(page, lambda: events.filter(has_text="Ended exited (0): command true").count() == 1)
    live.evict(made["id"])
    sooner(page, lambda: events.filter(has_text="Sandbox ended, evicted").count() == 1)
    assert "low on resource: memory" in events.last.inner_text()
    page.goto(f"{live.url}/console/#/sandboxes?verdict=evicted")
    page.get_by_role("link", name="watched", exact=True).wait_for()


def test_no_answer_grows_with_what_lives(live: LiveGateway, open_page: OpenPage) -> None:
    page = open_page()
    large: dict[str, int] = {}
    page.on("response", lambda answer: large.update({answer.url: int(answer.headers["content-length"])}))
    last = SANDBOXES // PER_PAGE
    for address, seen in (
        ("#/sandboxes", "Page 1 of"),
        (f"#/sandboxes?page={last}", f"Page {last:,} of"),
        (f"#/sandboxes?run={TURNOVER}", "sandboxes"),
        ("#/pools", "debian:bookworm"),
        (f"#/sandbox/{live.ids[-1]}", "Create requested"),
    ):
        page.goto(f"{live.url}/console/{address}")
        shown(page, seen)
        assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS, address
    assert len(large) >= 5
    assert max(large.values()) < MOST_BYTES, large
