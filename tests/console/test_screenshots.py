"""The pictures of docs/console.md, made anew by `make test-console SCREENSHOTS=docs/console ARGS="-k pictures"`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.console.conftest import Console, OpenPage

MOST_BYTES = 120_000
DESKTOP = {"viewport": {"width": 1000, "height": 700}}
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


def test_pictures_of_the_documentation_are_small(
    console: Console, open_page: OpenPage, tmp_path: Path
) -> None:
    target = Path(os.environ.get("SCREENSHOTS") or tmp_path)
    target.mkdir(parents=True, exist_ok=True)
    waiting = console.create(
        name="agent-2", docker_image=f"{console.registry}/acme/task:1", run="demo", wait_seconds=0
    )
    page = open_page(color_scheme="light", **DESKTOP)
    page.get_by_role("link", name="agent-2").wait_for()
    page.screenshot(path=target / "overview.png")
    page.goto(f"{console.url}/console/#/sandboxes?verdict=oom")
    page.get_by_role("main").get_by_text("2,000 sandboxes").wait_for()
    page.screenshot(path=target / "sandboxes.png", clip={"x": 0, "y": 0, "width": 1000, "height": 460})
    page = open_page(f"#/sandbox/{console.running['id']}", color_scheme="dark", **DESKTOP)
    page.get_by_role("button", name="of output of echo 42").click()
    page.get_by_role("region", name="Standard error").get_by_text("careful").wait_for()
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=target / "sandbox-dark.png")
    page = open_page("#/sandboxes?verdict=deleted", color_scheme="light", **PHONE)
    page.get_by_role("link", name="rollout-").first.wait_for()
    page.screenshot(path=target / "phone.png")
    console.delete(waiting["id"])
    for name in ("overview", "sandboxes", "sandbox-dark", "phone"):
        assert 5_000 < (target / f"{name}.png").stat().st_size < MOST_BYTES
