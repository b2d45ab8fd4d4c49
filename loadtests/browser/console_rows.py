"""What the web console costs the gateway and the browser with thousands of live sandboxes, and whether it breaks."""

from __future__ import annotations

import asyncio
import statistics
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from loadtests.browser.live_gateway import POOLS, TEN_THOUSAND, LiveGateway, Size, live_gateway
from loadtests.cluster import parts
from loadtests.reading import Reading
from tests import plain_http
from tests.console.browser import chromium, driver
from tests.console.pages import Pages, pages

ROWS = (
    "console_answer",
    "console_elements",
    "console_cpu",
    "console_refresh",
    "console_shown",
    "console_faults",
)
PER_PAGE = 50
_SLICE = 1.0  # seconds of a wait after which a cancel is noticed
_FEW = "#/sandboxes?status=live&run=run-0&labels=step-0"  # a list of a few rows


async def console(
    size: Size = TEN_THOUSAND, *, seconds: float = 10.0, rounds: int = 7, creates: int = 5
) -> dict[str, Reading]:
    """Measure the rows of this file. `seconds`: of each window. Needs root, an API server and Chromium.

    Cancelling it ends the gateway and the browser before it returns.
    """
    stop: Future[None] = Future()
    measuring = asyncio.get_running_loop().run_in_executor(
        None, lambda: measured(size, seconds=seconds, rounds=rounds, creates=creates, stop=stop)
    )
    try:
        return await asyncio.shield(measuring)
    except asyncio.CancelledError:
        stop.cancel()
        await asyncio.wait([measuring])
        measuring.exception()  # what ended it is the cancel
        raise


def measured(
    size: Size, *, seconds: float, rounds: int, creates: int, stop: Future[None] | None = None
) -> dict[str, Reading]:
    """As `console`, in this thread, which must have no event loop that runs: the browser's driver has its own.

    Cancelling `stop` in any thread ends it with an error.
    """
    begun = time.monotonic()
    stop = stop or Future()
    with (
        live_gateway(size, stop=stop) as live,
        chromium() as browser,
        pages(browser, live.url, key=live.api_key, jumps=False) as opened,
    ):
        told = {
            "sandboxes": str(size.sandboxes),
            "there after": f"{time.monotonic() - begun:.0f} s",
            "of which creates": f"{live.filled:.0f} s",
            "come and go": f"{size.rate:g} /s",
        }
        weights = _weights(live, opened, size)
        found = {
            "console_answer": Reading(value=max(weights["answers"].values()) / 1000, parts=told),
            "console_elements": Reading(
                value=max(weights["elements"].values()),
                parts={address: str(number) for address, number in weights["elements"].items()},
            ),
            "console_cpu": _cpu(live, opened, seconds=seconds, rounds=rounds, stop=stop),
            "console_refresh": _refresh(opened, seconds=seconds, stop=stop),
            "console_shown": _shown(live, opened, creates=creates, stop=stop),
        }
        faults = opened.complaints + live.lost
        found["console_faults"] = Reading(
            value=len(faults),
            parts={
                "events": str(live.events.total()),
                "ended": str(live.events["sandbox.ended"]),
                **({"first": faults[0][:150]} if faults else {}),
            },
        )
        return found


def _weights(live: LiveGateway, opened: Pages, size: Size) -> dict[str, dict[str, int]]:
    """Open each page; return the bytes of its answers, and its elements."""
    answers: dict[str, int] = {}
    elements: dict[str, int] = {}
    page = opened.open()
    page.on("response", lambda answer: answers.update({answer.url: int(answer.headers["content-length"])}))
    for address, seen in (
        ("#/", "creates of all tenants wait"),
        ("#/sandboxes", "Page 1 of"),
        (f"#/sandboxes?page={size.sandboxes // PER_PAGE}", f"Page {size.sandboxes // PER_PAGE:,} of"),
        ("#/sandboxes?run=run-3&image=ghcr.io&status=live", "Page 1 of"),
        ("#/pools", "debian:bookworm"),
        (f"#/sandbox/{live.ids[0]}", "Create requested"),
    ):
        page.goto(f"{live.url}/console/{address}")
        page.get_by_role("main").get_by_text(seen).first.wait_for()
        elements[address] = page.evaluate("document.querySelectorAll('*').length")
    page.close()
    return {"answers": answers, "elements": elements}


def _cpu(live: LiveGateway, opened: Pages, *, seconds: float, rounds: int, stop: Future[None]) -> Reading:
    """Compare the gateway's CPU while two tabs refresh every two seconds with that while both are paused."""
    tabs = [opened.open("#/"), opened.open("#/sandboxes")]
    calls: list[str] = []
    for tab in tabs:
        tab.on("response", lambda answer: calls.append(answer.url))
    quiet, busy = list[float](), list[float]()
    for _ in range(rounds):
        for pace, used in (("0", quiet), ("2", busy)):
            for tab in tabs:
                tab.get_by_label("Refresh").select_option(pace)
            if pace == "2":
                calls.clear()
            before = parts.cpu(live.process)
            _pause(tabs[0], seconds, stop=stop)
            used.append((parts.cpu(live.process) - before) / seconds)
    for tab in tabs:
        tab.close()
    if not calls:
        raise RuntimeError("the tabs asked for nothing while they should refresh")
    ratios = [each / other for each, other in zip(busy, quiet, strict=True)]
    return Reading(
        value=statistics.median(ratios),
        parts={
            "rounds": ", ".join(f"{ratio:.2f}" for ratio in ratios),
            "gateway, two open tabs": f"{statistics.median(busy) * 1000:.0f} millicores",
            "both paused": f"{statistics.median(quiet) * 1000:.0f} millicores",
            "calls of the last round": str(len(calls)),
            "memory": f"{live.process.memory_info().rss >> 20} MiB",
        },
    )


def _refresh(opened: Pages, *, seconds: float, stop: Future[None]) -> Reading:
    """Compare the work of the browser for the list of all with that for a list of a few, both refreshed."""
    took = {
        name: _work(opened, address, seconds=seconds, stop=stop)
        for name, address in (("few", _FEW), ("all", "#/sandboxes"))
    }
    return Reading(
        value=took["all"] * 1000,
        parts={"a list of a few rows": f"{took['few'] * 1000:.1f} ms"},
    )


def _work(opened: Pages, address: str, *, seconds: float, stop: Future[None]) -> float:
    """Return the seconds of the page's main thread for each refresh."""
    page = opened.open(address)
    page.get_by_role("main").get_by_text("Page 1 of").wait_for()
    refreshes: list[str] = []
    page.on("response", lambda answer: refreshes.append(answer.url))
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = _task_seconds(session)
    _pause(page, seconds, stop=stop)
    used = _task_seconds(session) - before
    page.close()
    if not refreshes:
        raise RuntimeError(f"{address} was not refreshed in {seconds:g} s")
    return used / len(refreshes)


def _task_seconds(session: Any) -> float:
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


def _shown(live: LiveGateway, opened: Pages, *, creates: int, stop: Future[None]) -> Reading:
    """Measure the time from a create's answer until the open list has its row: the list of all but those that come and go,
    which could push it to the next page.
    """
    page = opened.open("#/sandboxes?labels=grpo")
    page.get_by_role("main").get_by_text("Page 1 of").wait_for()
    took: list[float] = []
    headers = {"Authorization": f"Bearer {live.api_key}"}
    with plain_http.client(base_url=f"{live.url}/api/v1", headers=headers, timeout=60) as client:
        for number in range(creates):
            body = {
                "docker_image": POOLS["python"],
                "pool": "python",
                "name": f"shown-{number}",
                "labels": ["grpo"],
            }
            made = client.post("/sandbox", json=body).raise_for_status().json()
            asked = time.monotonic()
            _see(page.get_by_role("link", name=f"shown-{number}", exact=True), within=60, stop=stop)
            took.append(time.monotonic() - asked)
            client.delete(f"/sandbox/{made['id']}").raise_for_status()
    page.close()
    return Reading(value=max(took), parts={"median": f"{statistics.median(took):.1f} s"})


def _pause(page: Any, seconds: float, *, stop: Future[None]) -> None:
    """Wait; the browser's events arrive meanwhile. Raises RuntimeError soon after `stop` was cancelled."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        _check(stop)
        page.wait_for_timeout(min(left, _SLICE) * 1000)


def _see(element: Any, *, within: float, stop: Future[None]) -> None:
    """Wait until the page has it. Raises RuntimeError if it does not come, and soon after `stop` was cancelled."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        _check(stop)
        with suppress(driver().TimeoutError):
            element.wait_for(timeout=_SLICE * 1000)
            return
    raise RuntimeError(f"the page does not show {element} within {within:g} s")


def _check(stop: Future[None]) -> None:
    if stop.cancelled():
        raise RuntimeError("the measurement was ended")
