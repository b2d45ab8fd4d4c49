"""Whom the console serves: by keyboard alone, on a phone, in dark and light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.console.conftest import Console, OpenPage

CONTRAST = (Path(__file__).parent / "contrast.js").read_text().partition("\n")[2]
PAGES = ("#/", "#/sandboxes", "#/pools", "sandbox")
FOCUSED = """() => {
  const node = document.activeElement;
  const style = getComputedStyle(node);
  return {
    text: node.getAttribute("aria-label") || node.labels?.[0]?.textContent.trim() || node.textContent.trim(),
    outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    id: node.id,
  };
}"""


def visit(page: Any, console: Console, address: str) -> None:
    """Go to a page and wait for what it shows last."""
    where = f"#/sandbox/{console.running['id']}" if address == "sandbox" else address
    page.goto(f"{console.url}/console/{where}")
    last = {"#/": "Capacity", "sandbox": "Record", "#/sandboxes": "Sandboxes", "#/pools": "Pools"}[address]
    page.get_by_role("heading", name=last, exact=True).wait_for()
    page.locator("tbody > tr").first.wait_for()


def tab_to(page: Any, text: str) -> None:
    """Press Tab until the focus is on what begins with this text; it must be seen there."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused["text"].startswith(text):
            assert focused["outline"], f"no outline: {text}"
            return
    raise AssertionError(f"no Tab leads to {text}")


def test_all_of_it_by_keyboard(console: Console, open_page: OpenPage) -> None:
    page = open_page(key=None)
    page.get_by_label("API key").wait_for()
    page.keyboard.type(console.key)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Overview", exact=True).wait_for()
    page.locator("body").evaluate(
        "body => { body.tabIndex = -1; body.focus(); body.removeAttribute('tabindex'); }"
    )
    tab_to(page, "Skip to content")
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED)["id"] == "main"
    for _ in range(6):  # back from the page to the links before it
        page.keyboard.press("Shift+Tab")
        if page.evaluate(FOCUSED)["text"] == "Sandboxes":
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Sandboxes", exact=True).wait_for()
    assert page.evaluate(FOCUSED)["id"] == "main"
    tab_to(page, "State")
    page.keyboard.press("l")  # "live": each letter chooses anew if they come slowly
    page.get_by_role("main").get_by_text("Page 1 of 1,").wait_for()  # not 1 of 101
    tab_to(page, "agent-1")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="agent-1").wait_for()
    page.get_by_role("button", name="of output of echo 42").wait_for()
    tab_to(page, "Show 11 B of output of echo 42")
    page.keyboard.press("Space")
    page.get_by_role("heading", name="Output of echo 42").wait_for()
    assert page.evaluate(FOCUSED)["text"].startswith("Output of echo 42")
    tab_to(page, "Standard output")
    tab_to(page, "Environment variables")
    page.keyboard.press("Enter")
    page.get_by_text("STAGE").wait_for()


def test_pages_have_landmarks_and_tables_have_headers(console: Console, open_page: OpenPage) -> None:
    page = open_page()
    for address in PAGES:
        visit(page, console, address)
        for role in ("banner", "navigation", "main", "status"):
            assert page.get_by_role(role).count() == 1, role
        assert page.get_by_role("heading", level=1).count() == 1
        assert page.title().endswith("Sandlot console")
        assert page.locator("html").get_attribute("lang") == "en"
        for table in page.get_by_role("table").all():
            heads = table.get_by_role("columnheader").count()
            assert heads > 0
            assert table.locator("caption").inner_text()
            row = table.locator("tbody > tr").first
            assert row.get_by_role("rowheader").count() == 1
            assert row.get_by_role("cell").count() == heads - 1
        unnamed = "[...document.querySelectorAll('input,select')].filter((field) => !field.labels.length)"
        assert page.evaluate(f"{unnamed}.length") == 0


def test_a_phone_shows_all_without_scrolling_sideways(console: Console, open_page: OpenPage) -> None:
    wide = console.create(name="W" * 100, labels=["L" * 128], start_command=["/bin/echo", "x" * 300])
    console.run(wide["id"], f"echo {'y' * 2000}")
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    page = open_page(key=None, **phone)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page = open_page(**phone)
    for address in PAGES:
        visit(page, console, address)
        assert page.evaluate("document.documentElement.scrollWidth") == 360, address
    page.goto(f"{console.url}/console/#/sandbox/{wide['id']}")
    page.get_by_role("button", name="of output of echo yyy").tap()
    page.get_by_text("y" * 1000).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.get_by_role("table").get_by_role("columnheader").count() == 8  # also as cards
    small = "[...document.querySelectorAll('button, select, input')].filter((one) => one.offsetHeight && one.offsetHeight < 24).length"
    assert page.evaluate(small) == 0
    console.delete(wide["id"])


def test_every_text_has_the_contrast_of_aa(console: Console, open_page: OpenPage) -> None:
    def seen(page: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            assert light == (scheme == "light")
            found.append(page.evaluate(CONTRAST))
        return found

    page = open_page(key=None)
    page.get_by_label("API key").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("does not know this key").wait_for()
    all_seen = seen(page)
    page.get_by_label("API key").fill(console.key)
    page.keyboard.press("Enter")
    page.get_by_label("Refresh").wait_for()
    for address in PAGES:
        visit(page, console, address)
        all_seen += seen(page)
    assert [each["poor"] for each in all_seen] == [[]] * 10
    assert all(each["checked"] > 5 for each in all_seen)
    assert sum(each["checked"] for each in all_seen) > 600
