"""The rules of a random life by which sidecars take time, see lives_applied.py."""

from __future__ import annotations

from hypothesis.stateful import precondition, rule

from tests.gateway.lives_applied import SlowSidecars
from tests.gateway.lives_messages import Call
from tests.gateway.test_lives_model import LivesModel, choices, pick


class SlowLivesModel(LivesModel):
    world: SlowSidecars

    @precondition(lambda self: self.claims())
    @rule(choice=choices)
    def claim_is_being_applied(self, choice: int) -> None:
        self.world.begin_claim(pick(self.claims(), choice))

    @precondition(lambda self: self.world.applying())
    @rule(choice=choices)
    def claim_is_applied(self, choice: int) -> None:
        self.world.apply(pick(self.world.applying(), choice))

    @precondition(lambda self: self.world.unplaced())
    @rule(choice=choices)
    def pod_gets_an_address(self, choice: int) -> None:
        self.world.place(pick(self.world.unplaced(), choice))

    def claims(self) -> list[Call]:
        """Those that a sidecar could begin to apply."""
        return [call for call in self.world.calls if self.world.can_begin(call)]
