"""Calls of a session's sandbox, and what ended it: the code itself, which is output, or a loss, which ends the agent's run."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agents.exceptions import AgentsException

from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import ApiError, BadRequest, Conflict, FileError, SandboxLost, SandlotError
from sandlot.integrations._lost_commands import EndedByCode, ended_by_code
from sandlot.integrations._shared_loop import on_shared_loop

Result = TypeVar("Result")


class SessionLost(AgentsException, SandboxLost):
    """The session's sandbox, or a command of it, was lost; with `infrastructure` true, mask the sample.

    An `AgentsException`, which the runner raises as it is, with the run's data.
    """

    def __init__(self, message: str, *, verdict: str = "sandbox_lost", sandbox_id: str = "") -> None:
        super().__init__(message)
        self.verdict = verdict
        self.sandbox_id = sandbox_id


class Calls:
    """Calls the sandbox of a session on the process's loop. A loss is kept: every later call raises it again."""

    def __init__(self, box: AsyncSandbox) -> None:
        self.box = box
        self.lost: SessionLost | None = None
        self.ended_by_code = False

    async def run(self, work: Callable[[AsyncSandbox], Coroutine[Any, Any, Result]]) -> Result:
        """Return `work(box)`. Raises SessionLost, EndedByCode, and ApiError if the server refuses the call."""
        if self.lost is not None:
            raise self.lost
        box = self.box
        try:
            return await on_shared_loop(lambda: work(box))
        except SandboxLost as error:
            raise self._ended(str(error), error.verdict) from error
        except SandlotError as error:
            if _refused(error):
                raise
            # Out of reach for longer than the SDK's retries: what happened is unknown.
            raise self._ended(str(error), "sandbox_lost") from error

    async def running(self) -> bool:
        """Return whether the server has the sandbox, and remember why not."""
        if self.lost is not None or self.ended_by_code:
            return False
        try:
            info = await self.run(AsyncSandbox.refresh)
        except SessionLost:
            return False
        if info.ended:
            message = info.message or f"the sandbox is {info.status}"
            self._ended(message, info.verdict or "sandbox_lost")
        return not info.ended

    async def delete(self) -> None:
        """End the sandbox; where the server is out of reach, it ends by its time limit."""

        async def deleted() -> None:
            try:
                await self.box.delete()
            except SandlotError:
                return

        await on_shared_loop(deleted, to_the_end=True)

    def _ended(self, message: str, verdict: str) -> SessionLost | EndedByCode:
        if (ended := ended_by_code(message, verdict)) is not None:
            self.ended_by_code = True
            return ended
        self.lost = SessionLost(message, verdict=verdict, sandbox_id=self.box.id)
        return self.lost


def _refused(error: SandlotError) -> bool:
    """Return whether the server refused only this call, and the sandbox goes on."""
    if isinstance(error, (BadRequest, Conflict, FileError)):
        return True
    if not isinstance(error, ApiError):
        return False
    # 401: no call of the session works any more; 404 and 410: the sandbox, or a result, is no more.
    final = (401, 404, 408, 410, 429)
    return error.status in (501, 507) or (400 <= error.status < 500 and error.status not in final)
