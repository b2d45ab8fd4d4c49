"""A gateway that does not answer, or not now: the page says so, stays, and asks again after a growing pause."""

from __future__ import annotations

from typing import Any

from tests.console.conftest import OpenPage
from tests.waiting import wait_until

VISIBILITY = """hidden => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_an_unreachable_gateway_is_told_and_asked_again(open_page: OpenPage) -> None:
    page = open_page("#/pools")
    page.get_by_role("rowheader", name="warm").wait_for()
    page.context.set_offline(True)
    page.get_by_label("Refresh").select_option("10")
    page.get_by_role("alert").get_by_text("does not answer").wait_for()
    page.context.set_offline(False)
    page.clock.run_for(2000)
    page.get_by_role("alert").wait_for(state="hidden")


def test_a_reload_that_fails_is_tried_again_in_place(open_page: OpenPage) -> None:
    page = open_page("#/pools")
    whoami = "**/api/v1/user/whoami"
    asked: list[Any] = []

    def busy(route: Any) -> None:
        asked.append(route)
        route.fulfill(status=503, headers={"Retry-After": "60"}, json={"detail": "the gateway is starting"})

    page.route(whoami, busy)
    page.reload()
    alert = page.get_by_role("alert").get_by_text("is starting")
    alert.wait_for()
    page.evaluate("window.stays = true")
    page.clock.run_for(30_000)
    page.evaluate("0")  # the browser reports a request before this
    assert len(asked) == 1
    page.clock.run_for(31_000)
    wait_until(lambda: page.evaluate("1") and len(asked) == 2)
    page.evaluate(VISIBILITY, True)
    page.clock.run_for(120_000)
    page.evaluate("0")
    assert len(asked) == 2
    page.unroute(whoami)
    page.goto(page.url.replace("#/pools", "#/sandboxes"))
    page.evaluate(VISIBILITY, False)
    page.get_by_role("heading", name="Sandboxes", exact=True).wait_for()
    page.get_by_text("tenant default, role operate").wait_for()
    assert page.evaluate("stays") is True
    alert.wait_for(state="hidden")
