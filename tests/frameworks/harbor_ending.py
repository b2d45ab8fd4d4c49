"""Our environment of harbor with sandboxes that code ends, which no code of this machine's sandboxes can.

Those of the task NAME end with the first command that has ENDS[NAME] in it; those of `start` before any.
"""

from __future__ import annotations

from typing import Any

import sandlot
from sandlot.integrations.harbor import SandlotEnvironment

# The solution, the tests, and harbor's own command between the two.
ENDS = {
    "solution": "(/solution/solve.sh)",
    "tests": "(/tests/test.sh)",
    "between": "rm -f -- /logs/verifier/",
    "start": "",
}


class Mortal:
    """A sandbox; once it has ended, every call but `delete` says that its code did it."""

    def __init__(self, box: sandlot.AsyncSandbox, at: str) -> None:
        self._box = box
        self._at = at
        self._ended = not at

    async def exec(self, command: Any, **more: Any) -> Any:
        self._ended = self._ended or self._at in str(command)
        return await self._alive().exec(command, **more)

    async def delete(self) -> None:
        await self._box.delete()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._alive(), name)

    def _alive(self) -> sandlot.AsyncSandbox:
        if self._ended:
            raise sandlot.SandboxLost("its init was killed", verdict="init_killed", sandbox_id=self._box.id)
        return self._box


class EndingEnvironment(SandlotEnvironment):
    async def start(self, force_build: bool) -> None:
        await super().start(force_build)
        self._box = Mortal(self._started(), ENDS[self.environment_name])

    async def _prepare(self, box: Any) -> None:
        if self.environment_name == "start":
            self._box = box = Mortal(box, "")
        await super()._prepare(box)
