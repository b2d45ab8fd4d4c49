"""The key: asked once in a tab, kept nowhere else, and a wrong one is told."""

from __future__ import annotations

from typing import Any

from tests.console.conftest import USER, Console, OpenPage


def test_a_wrong_key_is_told_and_the_right_one_is_asked_once(console: Console, open_page: OpenPage) -> None:
    page = open_page("#/pools", key=None)
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    for wrong in ("wrong", "clé"):
        page.get_by_label("API key").fill(wrong)
        page.get_by_role("button", name="Open").click()
        page.get_by_text("does not know this key").wait_for()
        assert page.get_by_role("navigation").count() == 0
    page.get_by_label("API key").fill(console.key)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Pools", exact=True).wait_for()
    page.get_by_text("tenant default, role operate").wait_for()
    page.reload()
    page.get_by_role("rowheader", name="warm").wait_for()
    assert all(console.key not in request.url for request in asked)
    assert console.key not in page.url
    assert page.context.cookies() == []
    assert page.evaluate("Object.keys(localStorage)") == []
    assert page.evaluate("Object.values(sessionStorage)") == [console.key]
    other_tab = page.context.new_page()
    other_tab.goto(page.url)
    other_tab.get_by_label("API key").wait_for()
    page.get_by_role("button", name="Forget key").click()
    page.get_by_label("API key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    assert page.get_by_role("table").count() == 0


def test_what_a_key_may_not_see_is_not_shown(console: Console, open_page: OpenPage) -> None:
    page = open_page("#/sandboxes", key=USER)
    page.get_by_role("main").get_by_text("No sandbox matches.").wait_for()
    page.goto(f"{console.url}/console/#/sandbox/{console.running['id']}")
    page.get_by_role("alert").get_by_text("no sandbox").wait_for()
    assert console.running["name"] not in page.locator("body").inner_text()


def test_a_key_that_is_withdrawn_is_asked_again(open_page: OpenPage) -> None:
    page = open_page("#/pools")
    page.evaluate("sessionStorage.setItem('sandlot-key', 'withdrawn')")
    page.get_by_label("Refresh").select_option("10")
    page.get_by_text("does not know this key any more").wait_for()
    assert page.get_by_role("table").count() == 0
