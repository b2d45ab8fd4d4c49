"""For the scripts that frameworks run: a sandbox that has ended, which no code of this machine's sandboxes can cause."""

from __future__ import annotations

from typing import NoReturn

import sandlot


class EndedBox:
    """In place of a Sandbox or AsyncSandbox that has ended with a verdict; also its files, or a Python context."""

    id = "sb-ended"

    def __init__(self, verdict: str) -> None:
        self.files = self
        self._verdict = verdict

    def exec(self, *_: object, **__: object) -> NoReturn:
        raise sandlot.SandboxLost("it has ended", verdict=self._verdict)

    read = write = stat = run = close = exec
