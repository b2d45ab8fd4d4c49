"""Holes in the sidecar's core that were closed, put back one at a time, as those of tests/gateway/holes.py."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from hypothesis.stateful import RuleBasedStateMachine
from sandlot_sidecar.core.ends import End
from sandlot_sidecar.core.instance import InstanceState, Outcome, Phase
from sandlot_sidecar.core.op import Action, Op, State

from tests.gateway.holes import Hole
from tests.sidecar.test_instance_model import InstanceModel
from tests.sidecar.test_op_model import Ops


def a_kill_changes_an_end_that_is_being_explained() -> AbstractContextManager[Any]:
    """A command that somebody had killed was called a timeout that came a moment later."""
    kill = Op.kill

    def hasty(self: Op, cause: str, *, message: str | None, now: float) -> Action:
        if self.state is State.EXPLAINING and self.cause is None:
            self.cause = cause
        return kill(self, cause, message=message, now=now)

    return patch.object(Op, "kill", hasty)


def an_answer_ends_what_has_ended() -> AbstractContextManager[Any]:
    """What the executor said of an op came after a reset had ended it."""

    def deaf(self: Op, ask: object) -> bool:
        return True

    return patch.object(Op, "_was_asked", deaf)


def an_end_of_before_a_reset_ends_the_next_owner() -> AbstractContextManager[Any]:
    """A deadline that had waited for the reset to be over."""
    end = InstanceState.end

    def careless(
        self: InstanceState, why: End, *, generation: int | None = None, **conditions: Any
    ) -> Outcome:
        return end(self, why, **conditions)

    return patch.object(InstanceState, "end", careless)


def a_claim_that_fails_keeps_others_out() -> AbstractContextManager[Any]:
    """Its owner was never told, and nobody else could have the instance."""

    def forgetful(self: InstanceState) -> Outcome:
        self.phase = Phase.WARM
        return Outcome.NEWS

    return patch.object(InstanceState, "claim_failed", forgetful)


HOLES: list[tuple[Hole, type[RuleBasedStateMachine]]] = [
    (a_kill_changes_an_end_that_is_being_explained, Ops),
    (an_answer_ends_what_has_ended, Ops),
    (an_end_of_before_a_reset_ends_the_next_owner, InstanceModel),
    (a_claim_that_fails_keeps_others_out, InstanceModel),
]
