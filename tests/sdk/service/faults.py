"""The faults that a test orders from the server."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Fault:
    """What to do instead of a plain answer to the next request whose path ends with `route`.

    `status` answers so without doing anything, with `early` before it reads the body; `lose` does the work and closes without an answer; `refuse` closes
    before the work; `cut` closes a stream, or the body of a `status`, after so many bytes.
    """

    route: str
    status: int = 0
    body: dict[str, object] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    lose: bool = False
    refuse: bool = False
    early: bool = False
    cut: int | None = None
    stop: bool = False  # with `cut`: as if this were the end
    hold: bool = False  # never answer; with `status`: its head, and never its body
