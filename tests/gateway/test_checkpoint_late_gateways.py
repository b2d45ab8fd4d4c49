"""A gateway that is late with a checkpoint changes nothing of a later one that has its id by now, in a directory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.interface import Writing
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_documents import checkpoint, later
from tests.gateway.stepped import Stepped

LATE: dict[str, Callable[[Store, Checkpoint], object]] = {
    "finds its writer dead": lambda store, made: store.get(made.id),
    "lists them": lambda store, made: store.all(),
    "revokes it": lambda store, made: store.revoke(made, "late"),
    "deletes it": lambda store, made: store.delete(made),
}


@pytest.mark.parametrize("what", LATE)
def test_a_gateway_that_is_late_touches_nothing_of_a_later_one(tmp_path: Path, what: str) -> None:
    for steps in itertools.count():
        ours, theirs = (Store(tmp_path, limits=StoreLimits()) for _ in range(2))
        made = checkpoint()
        part = ours.begin(made)
        part.write(b"earlier")
        if what in ("revokes it", "deletes it"):
            ours.finish(made, part)
        part.close()  # as the kernel does
        late = Stepped(lambda store=ours, made=made: LATE[what](store, made))
        late.run(steps)
        is_last = late.is_over
        again, parts = later(made), list[Writing]()
        other = Stepped(lambda store=theirs, again=again, parts=parts: replaces(store, again, parts))
        while not other.is_over:
            if other.is_locked_out:  # by the late one
                late.run(1)
            other.step()
        late.run()
        theirs.finish(again, parts[0])
        assert (again.state, theirs.get(again.id)) == ("DURABLE", again)
        with closing(theirs.open(again)) as archive:
            assert archive.read(10) == b"later"
        theirs.delete(again)
        assert list(tmp_path.iterdir()) == []
        if is_last:
            assert steps > 5
            return


def replaces(store: Store, again: Checkpoint, parts: list[Writing]) -> None:
    if (found := store.get(again.id)) is not None:
        store.delete(found)
    part = store.begin(again)
    part.write(b"later")
    parts.append(part)
