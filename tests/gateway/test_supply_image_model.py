"""What SupplyCore decides about slots that wait for their nodes' images, under orders of events from hypothesis."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.supply_events import Asked, AskId, CameBack, Offered

from tests.gateway.supply_world import ONE
from tests.gateway.test_supply_model import SupplyOfAnyImageModel, choices, pick


class SupplyOfMissingImagesModel(SupplyOfAnyImageModel):
    """All on one node. Instances of pools have their own image at first, and others none."""

    node = "n1"

    def __init__(self) -> None:
        super().__init__()
        self.awaited: list[tuple[InstanceId, str]] = []
        self.unseen: set[str] = set()  # images that the node has had only since the last look

    def offer(self, instance: Instance, *, used: str | None = None) -> None:
        if instance.pool is None:
            instance.template = replace(instance.template, image="")
        super().offer(instance, used=used)

    @initialize(siblings=st.lists(st.booleans(), max_size=3))
    def some_are_missing(self, siblings: list[bool]) -> None:
        for sibling in siblings:
            self.ask("alpha", ONE, None, 0)
            if self.launching():
                self.launch_returns(0, waits=False)
                self.start_ends(0, end=None, taken=False, used=None)
            self.image_is_missing(0, sibling)

    @precondition(lambda self: self.owned)
    @rule(choice=choices, sibling=st.booleans())
    def image_is_missing(self, choice: int, sibling: bool) -> None:
        instance_id = pick(self.owned, choice)
        asked = self.owned.pop(instance_id)
        image = asked.template.image
        instance = self.core.slots.holds.put_back(self.holds.pop(instance_id))
        assert instance is not None
        self.offered.add(instance_id)
        self.awaited.append((instance_id, image))
        self.step(Offered(instance, awaits=image))
        if sibling:
            self.names += 1
            self.asks[AskId(self.names)] = other = replace(asked, ask=AskId(self.names))
            self.step(other)

    @precondition(lambda self: self.awaited)
    @rule(choice=choices, again=st.booleans())
    def create_comes_back(self, choice: int, again: bool) -> None:
        instance_id, image = self.awaited.pop(choice % len(self.awaited))
        if again:
            self.names += 1
            ask = Asked(AskId(self.names), Template(image), "alpha", again=True)
            self.asks[ask.ask] = ask
            self.step(ask)
        self.step(CameBack(instance_id, image))

    @precondition(lambda self: self.awaited)
    @rule(choice=choices, looks=st.booleans())
    def node_gets_image(self, choice: int, looks: bool) -> None:
        _, image = self.awaited[choice % len(self.awaited)]
        if image not in self.world.prepared:
            self.unseen.add(image)
            self.world.prepared[image] = {self.node}
        if looks:
            self.time_passes(1.0)

    @precondition(lambda self: self.world.prepared)
    @rule(choice=choices)
    def node_releases_image(self, choice: int) -> None:
        image = pick(self.world.prepared, choice)
        self.unseen.discard(image)
        del self.world.prepared[image]

    def looked(self) -> None:
        self.unseen.clear()

    def waits_for_others(self, instance: Instance, ask: Asked) -> bool:
        images = {image for instance_id, image in self.awaited if instance_id == instance.id}
        there = ask.template.image in self.world.prepared and ask.template.image not in self.unseen
        has_it = there or instance.template.image == ask.template.image
        return not has_it and (ask.template.image in images or len(images) >= 4)

    def teardown(self) -> None:
        for instance_id, image in self.awaited:
            self.step(CameBack(instance_id, image))
        super().teardown()


TestSupplyOfMissingImages = SupplyOfMissingImagesModel.TestCase
TestSupplyOfMissingImages.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
