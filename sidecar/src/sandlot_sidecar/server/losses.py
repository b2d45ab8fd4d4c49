"""What the executor and the gateway say that ends the sandbox, or all that runs in it."""

from __future__ import annotations

from .. import kernel
from ..core import ends
from . import log
from .tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
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
    """`end` ends the sandbox, as the instance does."""

    def __init__(
        self,
        end: EndSandbox,
        *,
        executor: ExecutorClient,
        webhooks: Webhooks,
        sandbox: Sandbox,
        ops: Ops,
    ) -> None:
        self._end_sandbox = end
        self._sandbox = sandbox
        self._ops = ops
        self._tasks = Tasks()
        executor.on_gone = self._executor_gone
        executor.on_event = self._executor_event
        webhooks.on_unwanted = self._unwanted

    def _end(self, end: End) -> None:
        self._tasks.spawn(self._end_sandbox(end))

    def _unwanted(self, told: dict[str, Any], verdict: str | None) -> None:
        """`verdict`: how its sandbox has ended, where the gateway knew that first, as of a pod that is evicted."""
        owner = told["sandbox_id"]
        # The answer is about what was told: whoever has claimed the instance since then would be ended with it.
        work = self._end_sandbox(ends.unwanted(verdict), only_unclaimed=owner is None, only_of=owner)
        self._tasks.spawn_quiet(work)

    def _executor_gone(self) -> None:
        self._end(ends.executor_lost(out_of_memory=self._sandbox.memory.exhausted()))

    def _executor_event(self, message: dict[str, Any]) -> None:
        event = message.get("event")
        if event == "init_lost":
            log.event("init_lost")
            self._ops.broken("the sandbox's first process was lost; a new one was made")
        elif event == "init_given_up":
            self._init_given_up()
        elif event == "target_lost":
            self._end(ends.container_ended(out_of_memory=self._sandbox.memory.exhausted()))

    def _init_given_up(self) -> None:
        mortal = kernel.init_is_mortal()
        end = ends.init_given_up(mortal=mortal, out_of_memory=self._sandbox.memory.exhausted())
        if mortal:
            self._ops.all_died(str(end.message))
        self._end(end)
