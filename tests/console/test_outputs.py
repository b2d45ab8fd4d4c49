"""The output of a chosen command: under its own heading, and labelled with what it is of the whole."""

from __future__ import annotations

from typing import Any

from tests.console.conftest import Console, OpenPage
from tests.waiting import wait_until


def test_a_late_answer_is_not_shown_under_another_command(console: Console, open_page: OpenPage) -> None:
    made = console.create(name="two-commands")
    slow = console.run(made["id"], "echo of the slow one")["op_id"]
    console.run(made["id"], "echo of the other")
    page = open_page(f"#/sandbox/{made['id']}")
    page.get_by_role("button", name="of output of echo of the slow one").wait_for()
    page.get_by_label("Refresh").select_option("0")  # or the next refresh repairs it
    held: list[Any] = []
    page.route(f"**/commands/{slow}/output*", lambda route: held.append(route))
    output = page.get_by_role("region", name="Standard output")
    for answer in ({"json": {"output": "of the slow one"}}, {"status": 502, "json": {"detail": "too slow"}}):
        with page.expect_request(f"**/commands/{slow}/output*"):
            page.get_by_role("button", name="of output of echo of the slow one").click()
        page.get_by_role("button", name="of output of echo of the other").click()
        output.get_by_text("of the other").wait_for()
        with page.expect_event("requestfinished"):
            held.pop().fulfill(**answer)
        page.evaluate("new Promise((done) => setTimeout(done))")  # after what the answer makes the page do
        assert page.get_by_role("heading", name="Output of echo of the other").count() == 1
        assert output.inner_text() == "of the other\n"
    console.delete(made["id"])


def test_output_that_was_dropped_is_told(console: Console, open_page: OpenPage) -> None:
    made = console.create(name="too-much")
    command = "head -c 90000 /dev/zero | tr '\\0' a; echo lost >&2"
    op = {"id": "a", "command": command, "output_limit": 50_000, "detach": True}
    console.client.post(f"/sbx/{made['id']}/ops", json=op).raise_for_status()
    wait_until(lambda: console.client.get(f"/sbx/{made['id']}/ops/a").json()["state"] == "ended")
    page = open_page(f"#/sandbox/{made['id']}")
    page.get_by_role("button", name="of output of head").click()
    page.get_by_text("the last 32 KiB of what was kept; the rest was dropped").wait_for()
    page.get_by_text("Standard error, as far as it was kept").wait_for()
    console.delete(made["id"])
