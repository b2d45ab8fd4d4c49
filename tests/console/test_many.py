"""With 10,000 sandboxes a page holds no more than with fifty, and asks for no more."""

from __future__ import annotations

from tests.console.conftest import RECORDS, Console, OpenPage, sooner

MOST_ELEMENTS = 1500
MOST_BYTES = 120_000


def test_pages_of_ten_thousand_are_bounded(console: Console, open_page: OpenPage) -> None:
    page = open_page()
    for address, call in (
        ("#/sandboxes", "page=1"),
        ("#/", "stats"),
        ("#/sandboxes?page=200", "page=200"),
        ("#/sandboxes?verdict=oom&image=debian", "verdict=oom"),
        ("#/pools", "pools"),
    ):
        with page.expect_response(lambda response, call=call: call in response.url) as answer:
            page.goto(f"{console.url}/console/{address}")
        assert len(answer.value.body()) < MOST_BYTES, address
        page.locator("tbody > tr").first.wait_for()
        assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS, address


def test_every_page_of_the_list_is_reached(console: Console, open_page: OpenPage) -> None:
    page = open_page("#/sandboxes?run=run-0&page=19")
    page.get_by_role("main").get_by_text("Page 19 of 20").wait_for()
    older = page.get_by_role("button", name="Older")
    older.click()
    page.get_by_role("link", name="rollout-0", exact=True).wait_for()
    assert older.is_disabled()
    page.get_by_role("button", name="Newer").click()
    page.get_by_role("link", name="rollout-99", exact=True).wait_for()
    total = console.client.get("/api/v1/sandbox", params={"is_active": "false", "per_page": 1}).json()[
        "total"
    ]
    assert total >= RECORDS


def test_many_commands_are_bounded(console: Console, open_page: OpenPage) -> None:
    made = console.create(name="busy")
    for number in range(101):
        console.run(made["id"], f"echo {number}")
    page = open_page(f"#/sandbox/{made['id']}")
    page.get_by_text("The last 100 of 101 commands.").wait_for()
    page.get_by_text("The last 100 of 202 events.").wait_for()
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    console.run(made["id"], "head -c 300000 /dev/zero | tr '\\0' a")
    button = page.get_by_role("button", name="of output of head")
    sooner(page, button.is_visible)
    button.click()
    page.get_by_text("the last 32 KiB of 293 KiB").wait_for()
    assert len(page.get_by_role("region", name="Standard output").inner_text()) == 32768
    console.delete(made["id"])
