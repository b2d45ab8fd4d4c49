"""Carries out a reset: ends what runs, empties the sandbox, and makes it ready for the next owner."""

from __future__ import annotations

import asyncio

from sandlot_contract.verdicts import CommandVerdict

from . import log, readiness
from . import record as records
from .tasks import beside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..core.instance import InstanceState, Outcome
    from .disk import Disk
    from .egress.owned import OwnedPolicy
    from .journal import Journal
    from .links.owned import OwnedLinks
    from .ops import Ops
    from .restoration import Restoration
    from .runners import Made
    from .sandbox import Sandbox
    from .use import Use


class Resetting:
    """The parts of one instance that its reset needs; the caller holds the instance's lock.

    `released` is called when the owner has lost the instance, `ready` once the sandbox can serve again.
    """

    def __init__(
        self,
        life: InstanceState,
        *,
        state_dir: str,
        sandbox: Sandbox,
        use: Use,
        ops: Ops,
        policy: OwnedPolicy,
        links: OwnedLinks,
        journal: Journal,
        disk: Disk,
        restoration: Restoration,
        heard: Callable[[Outcome], bool],
        released: Callable[[], None],
        ready: Callable[[], None],
    ) -> None:
        self._life = life
        self._state_dir = state_dir
        self._sandbox = sandbox
        self._use = use
        self._ops = ops
        self._policy = policy
        self._links = links
        self._journal = journal
        self._disk = disk
        self._restoration = restoration
        self._heard = heard
        self._released = released
        self._ready = ready

    async def end_ops(self, *, graceful: bool) -> None:
        """End all ops; `graceful`: a start command with a grace first has it."""
        cause, message = CommandVerdict.SANDBOX_ENDED, "the sandbox was reset"
        if graceful and self._use.begin_stop(cause, message=message):
            await self._use.stopped()
        await self._ops.end_all(cause, message=message)
        self._use.forget()

    async def empty(self, kept: dict[str, Any] | None) -> dict[str, Any]:
        """Empty the sandbox and serve again if it equals a fresh one; return the executor's answer.

        `kept`: the claim of an owner that keeps the instance. Raises SidecarError.
        """
        life, works = self._life, [self._journal.clear]
        if kept is None:
            works.append(lambda: records.store_next(self._state_dir, life.record))
        (answer, made), _ = await asyncio.gather(self._sandbox.reset(kept), beside(*works))
        if answer.get("equal"):
            await self._begin_anew(made, first_command_ran=bool(answer.get("prepared")))
        return answer

    async def _begin_anew(self, made: Made | None, *, first_command_ran: bool) -> None:
        """Serve again, with the runner that was `made`."""
        life = self._life
        await self._policy.emptied(kept=life.keeps)
        await self._links.begin(life.record.claim if life.keeps else None)
        over = self._heard(life.emptied())
        if over:
            self._restoration.reset()
            self._released()
        self._sandbox.prepare(self._ops, life.record.claim)
        self._ops.forget(made, ready=first_command_ran)
        self._disk.emptied()
        if not first_command_ran:
            await readiness.run_first_command(self._ops, owned=life.keeps)
        self._heard(life.built())
        log.event("reset", generation=life.record.generation, prepared=first_command_ran)
        self._ready()
