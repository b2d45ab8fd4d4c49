"""Debian's Chromium, driven by playwright, which is in an environment of its own: no other test needs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.prime.environments import pinned_environment

CHROMIUM = Path("/usr/bin/chromium")
PINNED = Path(__file__).parents[2] / "requirements" / "console.txt"


def driver() -> Any:
    """The module `playwright.sync_api`; its environment is made once, then found again."""
    python = pinned_environment(PINNED)
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    if str(packages) not in sys.path:
        sys.path.append(str(packages))  # last: what both have is the workspace's
    from playwright import sync_api  # pyright: ignore[reportMissingImports]

    return sync_api


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a profile and without a network of its own: it reaches this machine only."""
    with driver().sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM),
            args=["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        try:
            yield browser
        finally:
            browser.close()
