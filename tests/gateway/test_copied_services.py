"""Copies of a service of a group: they are of no group's services, or of no group at all, so their claims link nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.control import forks
from sandlot_gateway.control.fork_models import ForkRequest
from sandlot_gateway.core.group_turns import GroupId
from sandlot_gateway.e2b import copies
from sandlot_gateway.group_membership import GroupRef, GroupServices
from sandlot_gateway.sandboxes import Spec

DB = Spec(
    name="db",
    image="host",
    group=GroupRef(GroupId("gr-1"), 2, 0),
    services=GroupServices({"db": [5432], "web": [8080]}, own="db"),
)


def test_forks_are_no_services() -> None:
    wanted = forks._wanted(
        DB, ForkRequest.model_validate({"count": 2}), group_id=GroupId("gr-2"), checkpoint_id="cp-1"
    )
    assert [spec.services for spec, _ in wanted] == [None, None]
    assert [spec.group for spec, _ in wanted] == [
        GroupRef(GroupId("gr-2"), 2, 0),
        GroupRef(GroupId("gr-2"), 2, 1),
    ]


async def test_copies_over_e2bs_wire_are_of_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Spec] = []

    async def begin(spec: Spec, **options: Any) -> None:
        begun.append(spec)

    monkeypatch.setattr(copies, "begin_sandbox", begin)
    monkeypatch.setattr(copies, "usable", lambda spec, **options: spec)

    class Kept:
        id = "cp-1"

    kept = cast(Checkpoint, Kept)
    nothing = cast(Any, None)
    await copies.begin_like(
        DB, kept, timeout=60, key=None, continues=None, receive=nothing, have=nothing, who=nothing
    )
    assert [(spec.group, spec.services) for spec in begun] == [(None, None)]
