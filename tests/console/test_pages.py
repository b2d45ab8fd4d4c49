"""What the pages show of real sandboxes: counts, what waits and why, filters, a timeline, commands with their output."""

from __future__ import annotations

from typing import Any

from tests.console.conftest import Console, OpenPage, sooner
from tests.console.records import RUNS_EACH
from tests.waiting import wait_until


def rows(page: Any) -> Any:
    """The rows of the table's body."""
    return page.get_by_role("main").locator("tbody > tr")


def shown(page: Any, text: str) -> None:
    page.get_by_role("main").get_by_text(text).first.wait_for()


def test_the_overview_shows_states_slots_and_what_waits(console: Console, open_page: OpenPage) -> None:
    image = f"{console.registry}/acme/task:1"
    waiting = console.create(name="waits-here", docker_image=image, run="demo", wait_seconds=0)
    page = open_page()
    row = rows(page).filter(has_text="waits-here")
    row.wait_for()
    assert image in row.inner_text()
    why = row.get_by_role("cell").last.inner_text()
    assert len(why) > 10
    pool = rows(page).filter(has=page.get_by_role("rowheader", name="warm"))
    assert pool.get_by_role("cell").count() == 8
    states = page.get_by_role("listitem")
    assert "10,000" not in states.filter(has_text="RUNNING").inner_text()
    assert "2,000" in states.filter(has_text="oom").inner_text()
    assert page.get_by_text("creates of all tenants wait").is_visible()
    assert page.get_by_role("heading", name="Capacity").is_visible()
    assert page.get_by_text("max instances").is_visible()
    console.delete(waiting["id"])
    sooner(page, lambda: row.count() == 0)


def test_filters_are_the_gateway_s_and_in_the_address(console: Console, open_page: OpenPage) -> None:
    page = open_page("#/sandboxes")
    shown(page, "Page 1 of 20")
    page.get_by_label("Verdict").select_option("oom")
    shown(page, "2,000 sandboxes")
    page.get_by_label("Image contains").fill("ghcr.io")
    page.get_by_label("Run", exact=True).fill("run-3")
    page.get_by_label("Labels").fill("grpo, step-31")
    page.get_by_role("button", name="Filter").click()
    expected = len([n for n in range(3100, 3200) if n % 5 == 3 and n % 3 == 2])
    shown(page, f"Page 1 of 1, {expected} sandboxes")
    assert rows(page).count() == expected
    assert {row.split()[2] for row in rows(page).all_inner_texts()} == {"oom"}
    again = open_page(page.url.partition("/console/")[2])
    shown(again, f"{expected} sandboxes")
    assert again.get_by_label("Run", exact=True).input_value() == "run-3"
    again.get_by_label("Run", exact=True).fill("two words")
    again.keyboard.press("Enter")
    assert again.get_by_label("Run", exact=True).evaluate("field => !field.validity.valid")
    page.go_back()
    shown(page, "2,000 sandboxes")
    assert RUNS_EACH == 1000


def test_one_state_at_a_time(open_page: OpenPage) -> None:
    page = open_page("#/sandboxes")
    newest = page.get_by_role("link", name="rollout-9999")
    for state, name in (("live", "agent-1"), ("ended", "rollout-9999"), ("RUNNING", "agent-1")):
        page.get_by_label("State").select_option(state)
        page.get_by_role("link", name=name).wait_for()
        newest.wait_for(state="visible" if state == "ended" else "detached")


def test_a_sandbox_has_a_timeline_with_its_commands_and_output(console: Console, open_page: OpenPage) -> None:
    page = open_page(f"#/sandbox/{console.running['id']}")
    page.get_by_role("heading", name="agent-1").wait_for()
    events = page.locator("ol.timeline > li")
    wait_until(lambda: events.count() >= 5)
    told = " | ".join(events.all_inner_texts())
    for words in (
        "Create requested",
        "Running: waited",
        "Started: start command echo ready",
        "Ended exited (0): command echo 42",
    ):
        assert words in told
    page.get_by_role("button", name="of output of echo 42").press("Enter")
    shown(page, "Output of echo 42")
    output = page.get_by_role("region", name="Standard output")
    wait_until(lambda: output.inner_text() == "42\n")
    assert page.get_by_role("region", name="Standard error").inner_text() == "careful\n"
    page.get_by_role("button", name="of output of echo ready").click()
    wait_until(lambda: output.inner_text() == "ready to serve\n")
    page.get_by_text("Environment variables").click()
    assert page.get_by_text("STAGE").is_visible()


def test_pages_follow_what_happens_and_say_it(console: Console, open_page: OpenPage) -> None:
    page = open_page("#/sandboxes?run=live-test")
    shown(page, "No sandbox matches.")
    made = console.create(name="follow-me", run="live-test")
    link = page.get_by_role("link", name="follow-me")
    sooner(page, link.is_visible)
    news = page.get_by_role("status")
    wait_until(lambda: "1 sandboxes" in news.inner_text())
    link.click()
    page.get_by_role("heading", name="follow-me").wait_for()
    page.get_by_text("No command is known").wait_for()
    console.run(made["id"], "echo late")
    sooner(page, page.get_by_role("button", name="of output of echo late").is_visible)
    console.delete(made["id"])
    sooner(page, page.get_by_text("Sandbox ended, deleted").is_visible)
    shown(page, "its commands are known only while it runs")
    wait_until(lambda: "TERMINATED" in news.inner_text())


def test_a_hidden_or_paused_page_asks_nothing(console: Console, open_page: OpenPage) -> None:
    page = open_page("#/pools")
    page.get_by_role("rowheader", name="warm").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("Refresh").select_option("10")
    wait_until(lambda: page.evaluate("1") and asked)
    asked.clear()
    page.clock.run_for(15_000)
    wait_until(lambda: page.evaluate("1") and asked)
    page.evaluate(
        """Object.defineProperty(document, "hidden", {value: true, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"))"""
    )
    asked.clear()
    page.clock.run_for(120_000)
    assert asked == []
    page.evaluate(
        """Object.defineProperty(document, "hidden", {value: false});
        document.dispatchEvent(new Event("visibilitychange"))"""
    )
    wait_until(lambda: page.evaluate("1") and asked)
    page.get_by_label("Refresh").select_option("0")
    asked.clear()
    page.evaluate('document.dispatchEvent(new Event("visibilitychange"))')
    page.clock.run_for(120_000)
    assert asked == []
