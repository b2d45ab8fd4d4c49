"""Which slots use which images, as the next agent reads it from the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot_node.failures import ImageError, Kind
from sandlot_node.images import ImageId, SlotId
from sandlot_node.ledger import Ledger
from sandlot_node.state import State

from tests.node.agents import PlayedEngine, preparer_of, ready
from tests.node.registries import OPEN

IDS = [ImageId(f"sha256:{number:064x}") for number in range(3)]


def ledger_of(*image_ids: ImageId) -> Ledger:
    ledger = Ledger(budget=1 << 40, hold=0.0)
    for number, image_id in enumerate(image_ids):
        ledger.add(image_id, {image_id: 10}, name=f"image-{number}:1", now=1.0)
    return ledger


def log(directory: Path) -> list[Path]:
    return list(directory.glob("*.log"))


def uses(directory: Path) -> dict[ImageId, set[str]]:
    return {image_id: set(entry.uses) for image_id, entry in State(directory).load().items()}


def test_a_change_is_read_with_what_was_saved_before(tmp_path: Path) -> None:
    state, ledger = State(tmp_path), ledger_of(*IDS)
    ledger.use(IDS[0], SlotId("a"), now=2.0)
    state.save(ledger)
    ledger.use(IDS[1], SlotId("b"), now=3.0)
    state.note(IDS[1], ledger.entries[IDS[1]])
    ledger.unuse(IDS[0], SlotId("a"), now=4.0)
    state.note(IDS[0], ledger.entries[IDS[0]])
    assert uses(tmp_path) == {IDS[0]: set(), IDS[1]: {"b"}, IDS[2]: set()}
    found = State(tmp_path).load()[IDS[1]]
    assert (found.names, found.uses, found.last_used) == (["image-1:1"], {"b": 3.0}, 3.0)


def test_a_change_costs_the_same_however_many_images_there_are(tmp_path: Path) -> None:
    sizes: list[int] = []
    for count in (1, 500):
        state = State(tmp_path / str(count))
        ledger = ledger_of(*(ImageId(f"sha256:{number:064x}") for number in range(count)))
        state.save(ledger)
        before = {path: path.read_bytes() for path in (tmp_path / str(count)).iterdir()}
        state.note(IDS[0], ledger.entries[IDS[0]])
        changed = [
            path for path in (tmp_path / str(count)).iterdir() if path.read_bytes() != before.get(path)
        ]
        sizes.append(sum(path.stat().st_size for path in changed))
    assert sizes[0] == sizes[1]


def test_saving_all_begins_the_changes_anew(tmp_path: Path) -> None:
    state, ledger = State(tmp_path), ledger_of(IDS[0])
    ledger.use(IDS[0], SlotId("a"), now=2.0)
    state.note(IDS[0], ledger.entries[IDS[0]])
    ledger.unuse(IDS[0], SlotId("a"), now=3.0)
    state.save(ledger)
    assert uses(tmp_path) == {IDS[0]: set()}


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    state, ledger = State(tmp_path), ledger_of(*IDS)
    state.save(ledger)
    for number, slot in enumerate("abc"):
        ledger.use(IDS[number], SlotId(slot), now=2.0)
        state.note(IDS[number], ledger.entries[IDS[number]])
        if number == 1:
            (file,) = log(tmp_path)
            file.write_bytes(file.read_bytes()[:-20])
    assert uses(tmp_path) == {IDS[0]: {"a"}, IDS[1]: set(), IDS[2]: {"c"}}


def test_a_file_that_cannot_be_read_leaves_the_changes(tmp_path: Path) -> None:
    state, ledger = State(tmp_path), ledger_of(IDS[0])
    state.save(ledger)
    (tmp_path / "images.json").write_text("{")
    ledger.use(IDS[0], SlotId("a"), now=2.0)
    state.note(IDS[0], ledger.entries[IDS[0]])
    assert uses(tmp_path) == {IDS[0]: {"a"}}


async def test_the_changes_grow_no_further_while_an_image_cannot_be_released(
    engine: PlayedEngine, tmp_path: Path
) -> None:
    preparer = preparer_of(engine, tmp_path, budget=20)
    used, _ = await ready(preparer, f"{OPEN}/a:1"), await ready(preparer, f"{OPEN}/b:1")
    preparer.use(used.id, SlotId("a"))
    assert log(tmp_path)
    preparer.ledger.budget = 10
    engine.stays = ImageError(Kind.FAILED, "busy")
    with pytest.raises(ImageError, match="busy"):
        await preparer.housekeep()
    assert not log(tmp_path)
    assert uses(tmp_path)[used.id] == {"a"}
