"""Lives in which a gateway searches for a dead one's claims while others claim, and what it hears comes late."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.lives_kept import calls
from tests.gateway.lives_kubernetes import faultless_world


def test_an_older_answer_of_a_search_ends_no_newer_poll(tmp_path: Path) -> None:
    """A request for a sandbox that was claimed since waited for as long as one for an unknown one."""
    with faultless_world(tmp_path, gateways=3, reuses=True) as world:
        maker, other, third = world.gateways
        maker.create(key="k")
        other.create(key="k")
        world.quiet(until=lambda: bool(calls(world, "claim", of=maker)))
        world.words.clear()
        world.kill(maker)
        sandbox = third.create()
        assert sandbox is not None
        world.quiet(until=lambda: bool(calls(world, "claim", of=third)))
        [claim] = calls(world, "claim", of=third)
        for _ in range(20):
            if polls := [
                one for one in calls(world, "state", of=other) if one.instance_id == claim.instance_id
            ]:
                break
            world.pass_time(0.25)
        [older] = polls
        world.arrive(older)
        world.arrive(claim)
        world.give_answer(claim)
        world.words.clear()
        other._run(lambda: other.backend.sought(sandbox.id))
        world.settle()
        [newer] = [
            one
            for one in calls(world, "state", of=other)
            if one.instance_id == claim.instance_id and one is not older
        ]
        world.give_answer(older)
        world.arrive(newer)
        world.give_answer(newer)
        known = other.directory.get(sandbox.id)
        assert known is not None
        assert (known.status, known.instance_id) == ("RUNNING", claim.instance_id)
