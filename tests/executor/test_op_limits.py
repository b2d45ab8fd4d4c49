"""The rlimit of processes that a runner gives to ops where the kernel's groups are inexact, from owner to owner."""

from __future__ import annotations

import resource
from typing import Any

import pytest
from sandlot_sidecar.executor.op_limits import OpLimits

MOST = 5000  # what the container allows


class Watch:
    """What an owner's limits say."""

    process_limit: int | None = None


@pytest.mark.parametrize(
    "given", [(resource.RLIM_INFINITY, resource.RLIM_INFINITY), (MOST, MOST), (50, MOST)]
)
def test_an_owner_without_a_limit_has_none_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, given: tuple[int, int]
) -> None:
    now = given

    def change(number: int, limits: tuple[int, int]) -> None:
        nonlocal now
        now = limits

    # Not this process's own: to raise it again takes a capability.
    monkeypatch.setattr(resource, "getrlimit", lambda number: now)
    monkeypatch.setattr(resource, "setrlimit", change)
    watch: Any = Watch()
    limits = OpLimits(None, watch)
    for limit in (None, 100, None, 100, 200, None):
        watch.process_limit = limit
        limits.set({})
        assert now == (given if limit is None else (50 if given[0] == 50 else limit, limit))
