"""Handles losses that the executor and the gateway report, which end the sandbox or all that runs in it."""

from __future__ import annotations

from .. import kernel
from ..core import ends
from . import log
from .tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, Protocol

    from ..core.ends import End
    from .executor_client import ExecutorClient
    from .ops import Ops
    from .sandbox import Sandbox
    from .webhooks import Webhooks

    class EndSandbox(Protocol):
        def __call__(
            self, end: End, *, only_unclaimed: bool = False, only_of: str | None = None
        ) -> Coroutine[Any, Any, None]: ...


class Losses:
    """Subscribes to the executor's and the gateway's reports.

    `end` ends the sandbox, `renewed` is called once its init was replaced.
    """

    def __init__(
        self,
        end: EndSandbox,
        *,
        executor: ExecutorClient,
        webhooks: Webhooks,
        sandbox: Sandbox,
        ops: Ops,
        renewed: Callable[[], None],
    ) -> None:
        self._end_sandbox = end
        self._renewed = renewed
        self._sandbox = sandbox
        self._ops = ops
        self._tasks = Tasks()
        executor.on_gone = self._executor_gone
        executor.on_event = self._executor_event
        webhooks.on_unwanted = self._unwanted

    def _end(self, end: End) -> None:
        self._tasks.spawn(self._end_sandbox(end))

    def _unwanted(self, told: dict[str, Any], verdict: str | None) -> None:
        """End an instance that the gateway released. `verdict`: how its sandbox ended, if the gateway knows."""
        owner = told["sandbox_id"]
        # The response is about the webhook's document: an owner that claimed the instance since must not lose it.
        work = self._end_sandbox(ends.unwanted(verdict), only_unclaimed=owner is None, only_of=owner)
        self._tasks.spawn_quiet(work)

    def _executor_gone(self) -> None:
        end = ends.executor_lost(out_of_memory=self._sandbox.memory.exhausted())
        # First: the end of a start command that is the sandbox's main one would be the sandbox's.
        self._end(end)
        # Now: a reset that has the lock may wait for one of them, and their runners' ends would be taken for the code's.
        self._ops.abandon_all(end.cause, message=end.message or end.verdict)

    def _executor_event(self, message: dict[str, Any]) -> None:
        event = message.get("event")
        if event == "init_lost":
            log.event("init_lost")
            self._ops.broken("the sandbox's init process was lost; a new one was started")
            self._renewed()
        elif event == "init_given_up":
            self._init_given_up()
        elif event == "prepared":
            log.event("prepared")
        elif event == "target_lost":
            self._end(ends.container_ended(out_of_memory=self._sandbox.memory.exhausted()))

    def _init_given_up(self) -> None:
        mortal = kernel.init_is_mortal()
        end = ends.init_given_up(mortal=mortal, out_of_memory=self._sandbox.memory.exhausted())
        if mortal:
            self._ops.init_died(str(end.message))
        self._end(end)
