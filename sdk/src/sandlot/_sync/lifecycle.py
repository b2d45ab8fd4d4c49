# This file is auto-generated from sdk/src/sandlot/_async/lifecycle.py by tools/async_to_sync.py: do not change it.
"""The life of a sandbox that exists: wait until it is ready, read its state and its log, and delete it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sandlot._protocol import documents
from sandlot._protocol.messages import with_query
from sandlot._sync.client import CLEANUP, Client
from sandlot._sync.handle import Handle
from sandlot._tasks_sync import now, shielded, sleep
from sandlot.errors import NotFound, SandboxLost, SandlotError, WaitTimeout
from sandlot.models import SandboxInfo


class Lifecycle(Handle):
    """Waits for a sandbox and ends it; a base class of `Sandbox`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            shielded(lambda: delete_quietly(self.client, self.id))
        else:
            shielded(self.delete)

    def delete(self) -> None:
        """End the sandbox and all that runs in it; a sandbox that has already ended is no error."""
        try:
            self.client.call("DELETE", f"/sandbox/{self.id}", sandbox_id=self.id)
        except (NotFound, SandboxLost):
            return

    def refresh(self) -> SandboxInfo:
        """Read the sandbox's state from the server, set `info` and return it."""
        document = self.client.call("GET", f"/sandbox/{self.id}", sandbox_id=self.id)
        self.info = documents.sandbox_info(document)
        return self.info

    def wait_ready(self, *, timeout: float = 300.0) -> None:
        """Wait until commands can run. Raises SandboxLost if the sandbox ends first, WaitTimeout after `timeout` s."""
        deadline = now() + timeout
        delay = 0.05
        while self.info.status != "RUNNING":
            if self.info.ended:
                message = self.info.message or f"the sandbox is {self.info.status}"
                raise SandboxLost(message, verdict=self.info.verdict or "start_failed", sandbox_id=self.id)
            if now() + delay > deadline:
                why = f" ({self.info.pending_message})" if self.info.pending_message else ""
                raise WaitTimeout(
                    f"sandbox {self.id} is {self.info.status} after {timeout:g} s{why}: wait longer, or keep a pool of its image"
                )
            sleep(delay)
            delay = min(delay * 1.5, 1.0)
            self.refresh()

    def logs(self, *, tail: int | None = None) -> str:
        """Return the output of the start command, or its last `tail` bytes."""
        route = with_query("/logs", {"stream": "all", "tail": tail})
        return (self._plane.send("GET", route)).body.decode("utf-8", "replace")


def delete_quietly(client: Client, sandbox_id: str) -> None:
    """Delete the sandbox and ignore failures, which would hide the error that is being raised."""
    try:
        client.call("DELETE", f"/sandbox/{sandbox_id}", timeout=CLEANUP, patience=CLEANUP)
    except SandlotError:
        return
