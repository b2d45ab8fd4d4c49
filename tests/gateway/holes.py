"""Holes that were found in the core and closed, put back one at a time: a model that finds none of them proves nothing.

`make model ARGS=--holes` looks for each with its model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from hypothesis.stateful import RuleBasedStateMachine
from sandlot_gateway.backends.kubernetes.destroyer import Destroyer
from sandlot_gateway.backends.kubernetes.records import Records
from sandlot_gateway.core.holds import Holds
from sandlot_gateway.core.slot import Hold, Loss, Phase, ReportOutcome
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.starts import Starts
from sandlot_gateway.engine.adoption import Adoption
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_wire import Wire
from tests.gateway.test_lives_kubernetes import KubernetesLivesModel
from tests.gateway.test_lives_model import LivesModel
from tests.gateway.test_supply_model import SupplyModel

Hole = Callable[[], AbstractContextManager[Any]]


def lost_before_its_launch_returned() -> AbstractContextManager[Any]:
    """The create that it was started for waited until the start's time was over."""
    launched = Starts.launched

    def deaf(self: Starts, *args: Any, **named: Any) -> None:
        launched(self, *args, **named)

    return patch.object(Starts, "launched", deaf)


def lost_while_it_was_claimed() -> AbstractContextManager[Any]:
    """The sandbox ran, as far as anybody was told, in an instance that was gone."""
    lost = Slots.lost

    def deaf(self: Slots, instance_id: str, loss: Loss) -> Any:
        slot = self.get(instance_id)
        claimed = slot is not None and slot.phase is Phase.CLAIMING
        return slot if claimed else lost(self, instance_id, loss)

    return patch.object(Slots, "lost", deaf)


def ended_whoever_owns_it() -> AbstractContextManager[Any]:
    """An end that was sent for one owner, and came late, met the next."""
    end = Wire.end

    async def careless(self: Wire, *args: Any, only_of: str | None = None, **named: Any) -> Any:
        return await end(self, *args, **named)

    return patch.object(Wire, "end", careless)


def another_gateways_claim_is_not_heard_while_ones_own_is_under_way() -> AbstractContextManager[Any]:
    """The sandbox was not found here for a whole heartbeat, and then by chance."""
    report_owned = Slots.report_owned

    def deaf(self: Slots, instance: Any, *args: Any) -> ReportOutcome:
        slot = self.get(instance.id)
        if slot is not None and slot.phase is not Phase.UNREPORTED:
            return ReportOutcome.LATE
        return report_owned(self, instance, *args)

    return patch.object(Slots, "report_owned", deaf)


def an_end_that_was_heard_of_is_the_sandboxs_whatever_came_after() -> AbstractContextManager[Any]:
    """A gateway that had heard of a claim in vain ended the sandbox's second instance."""
    adopt = Adoption._adopt

    def hasty(self: Adoption, instance: Any, sandbox: Sandbox) -> None:
        known = self._directory.get(sandbox.id)
        if known is not None and not known.live:
            self._ends.retire(instance.id, known.id, verdict=known.verdict or "deleted")
        else:
            adopt(self, instance, sandbox)

    return patch.object(Adoption, "_adopt", hasty)


def a_start_that_is_given_up_is_the_sandboxs_end() -> AbstractContextManager[Any]:
    """Its Sandbox was deleted, which another gateway that had heard of the claim took for the sandbox's own."""
    destroy = Destroyer.destroy

    async def silent(self: Destroyer, instance_id: str, *, given_back: bool = False) -> None:
        await destroy(self, instance_id)

    return patch.object(Destroyer, "destroy", silent)


def a_delete_is_answered_before_anybody_else_can_know_it() -> AbstractContextManager[Any]:
    """Killed in that moment, its gateway left a sandbox that another one brought up."""

    async def hasty(self: Records, sandbox_ids: set[str], *, timeout: float) -> None:
        return

    return patch.object(Records, "ends_written", hasty)


def a_create_gives_back_whatever_slot_its_instance_has_now() -> AbstractContextManager[Any]:
    """The slot had been reset and granted to another create, whose sandbox was taken for lost."""
    end = Holds._end

    def careless(self: Holds, hold: Hold) -> Any:
        slot = self._slots.get(hold.instance.id)
        return end(self, slot.hold if slot is not None and slot.hold is not None else hold)

    return patch.object(Holds, "_end", careless)


HOLES: list[tuple[Hole, type[RuleBasedStateMachine]]] = [
    (lost_before_its_launch_returned, SupplyModel),
    (lost_while_it_was_claimed, LivesModel),
    (ended_whoever_owns_it, LivesModel),
    (another_gateways_claim_is_not_heard_while_ones_own_is_under_way, LivesModel),
    (an_end_that_was_heard_of_is_the_sandboxs_whatever_came_after, LivesModel),
    (a_start_that_is_given_up_is_the_sandboxs_end, KubernetesLivesModel),
    (a_create_gives_back_whatever_slot_its_instance_has_now, SupplyModel),
    (a_delete_is_answered_before_anybody_else_can_know_it, KubernetesLivesModel),
]
