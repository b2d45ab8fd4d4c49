"""What a starting agent does while containerd is away: it keeps all images and uses, and tries again."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot_node.adoption import adopt
from sandlot_node.failures import ImageError, Kind
from sandlot_node.images import Image, SlotId

from tests.node.agents import PlayedEngine, preparer_of, ready
from tests.node.registries import OPEN

AWAY = ImageError(Kind.UNAVAILABLE, "containerd did not answer at /run/containerd.sock")


class Awaiting(PlayedEngine):
    """An engine whose containerd is away for the first tries to restore."""

    def __init__(self, images: Path, *failures: ImageError) -> None:
        super().__init__(images)
        self.failures = list(failures)
        self.restores = 0

    async def restore(self) -> list[Image]:
        self.restores += 1
        if self.failures:
            raise self.failures.pop(0)
        return await super().restore()


async def test_an_agent_tries_again_until_containerd_is_back(tmp_path: Path) -> None:
    engine = Awaiting(tmp_path)
    before = preparer_of(engine, tmp_path)
    image = await ready(before, f"{OPEN}/a:1")
    before.use(image.id, SlotId("slot"))
    engine.failures = [AWAY, AWAY]
    agent = preparer_of(engine, tmp_path)
    await adopt(agent, seconds=60, pause=0.0)
    assert engine.restores == 3
    assert agent.ledger.entries[image.id].uses.keys() == {"slot"}


@pytest.mark.parametrize(("error", "seconds"), [(AWAY, 0.0), (ImageError(Kind.FAILED, "broken"), 60.0)])
async def test_an_agent_that_gives_up_leaves_the_record_of_uses(
    tmp_path: Path, error: ImageError, seconds: float
) -> None:
    engine = Awaiting(tmp_path)
    before = preparer_of(engine, tmp_path)
    image = await ready(before, f"{OPEN}/a:1")
    before.use(image.id, SlotId("slot"))
    engine.failures = [error]
    with pytest.raises(ImageError, match=error.message):
        await adopt(preparer_of(engine, tmp_path), seconds=seconds, pause=0.0)
    agent = preparer_of(engine, tmp_path)
    await agent.start()
    assert agent.ledger.entries[image.id].uses.keys() == {"slot"}
