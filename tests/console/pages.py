"""Opens pages of the console in a browser, and collects what their scripts and policies complain about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import SECONDS

# What a page itself cannot hide: a script that ran, a policy that was broken.
WATCH = """
window.stolen = [];
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`violation: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
});
"""


OpenPage = Callable[..., Any]


@dataclass
class Pages:
    """Those of one gateway. `jumps`: their time can be let pass quickly, as `sooner` does."""

    browser: Any
    url: str
    key: str
    jumps: bool = True
    complaints: list[str] = field(default_factory=list[str])
    _contexts: list[Any] = field(default_factory=list[Any])

    def open(
        self, address: str = "#/", *, key: str | None = "", complains: bool = False, **options: Any
    ) -> Any:
        """Open a page in a browser without a history. `key`: None enters none; `complains`: it rejects something."""
        context = self.browser.new_context(**options)
        self._contexts.append(context)
        context.set_default_timeout(SECONDS * 1000)  # a page that loads slowly rests ten times as long
        context.add_init_script(WATCH)
        if self.jumps:
            context.clock.install()  # it goes on by itself; `sooner` lets it jump
        page = context.new_page()
        page.on("console", (lambda _: None) if complains else self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"{self.url}/console/{address}")
        if key is not None:
            page.get_by_label("API key").fill(key or self.key)
            page.keyboard.press("Enter")
            page.get_by_label("Refresh").wait_for()
        return page

    def _heard(self, message: Any) -> None:
        # The browser itself reports answers that are errors, such as the 401 for a wrong key.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@contextmanager
def pages(browser: Any, url: str, *, key: str, jumps: bool = True) -> Iterator[Pages]:
    """Close all pages at the end."""
    made = Pages(browser, url, key, jumps)
    try:
        yield made
    finally:
        made.close()
