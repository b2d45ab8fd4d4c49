"""What the gateway needs to know of a request to run code, whichever route it came by."""

from __future__ import annotations

from typing import Any, Protocol

from .sandbox import SandboxClient


class Job(Protocol):
    """A request, and the form of its answers."""

    language: str  # decides in which image it runs
    granted: float  # seconds for its code, after which its client gives up in a while

    def longest(self) -> float:
        """Return the seconds for which its code may run. Raises BadInput if it cannot run at all."""
        ...

    async def run(
        self, client: SandboxClient, *, programs: dict[str, str | None], place: str, sandbox: str
    ) -> dict[str, Any]:
        """Run it in a clean sandbox and return the answer. Raises Lost, BadInput.

        `programs` are those that were looked for in this sandbox, `place` says what it was made of.
        """
        ...

    def sandbox_error(self, message: str, *, sandbox: str | None) -> dict[str, Any]:
        """Return the answer to a request that no repetition helps."""
        ...

    def ended_by_code(self, verdict: str, *, sandbox: str) -> dict[str, Any]:
        """Return the answer to a request whose code ended its whole sandbox, with all output."""
        ...
