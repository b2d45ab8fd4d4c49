"""Instances in each state of their life, for tests of sandlot_sidecar/core/instance.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandlot_sidecar.core import ends
from sandlot_sidecar.core.instance import InstanceState
from sandlot_sidecar.core.record import Record


def claim_of(sandbox_id: str, *, restore: bool = False, tenant: str | None = "t") -> dict[str, Any]:
    return {
        "sandbox_id": sandbox_id, "token": f"token of {sandbox_id}", "tenant": tenant, "restore": restore,
        "timeout": None,
    }  # fmt: skip


MINE, ANOTHERS, FILES = claim_of("sb-mine"), claim_of("sb-another"), claim_of("sb-mine", restore=True)
STRANGERS = claim_of("sb-another", tenant="u")


def take(life: InstanceState, claim: dict[str, Any]) -> bool:
    return life.claim(claim, generation=None, now=5.0)


def begin_reset(life: InstanceState, *, keep: bool) -> dict[str, Any] | None:
    return life.reset(keep_claim=keep, generation=None, overlay=True)


# Of generation 1 (2 if it was used before), each by its name; whatever is owned is sb-mine's.
MAKE: dict[str, Callable[[InstanceState], object]] = {
    "starting": lambda life: None,
    "warm": lambda life: life.built(),
    "claiming": lambda life: (MAKE["warm"](life), take(life, MINE)),
    "awaiting": lambda life: (MAKE["warm"](life), take(life, FILES), life.claimed()),
    "restoring": lambda life: (MAKE["awaiting"](life), life.restore()),
    "claimed": lambda life: (MAKE["claiming"](life), life.claimed()),
    "resetting": lambda life: (MAKE["claimed"](life), begin_reset(life, keep=False)),
    "warm again": lambda life: (MAKE["resetting"](life), life.emptied(), life.built()),
    "claiming again": lambda life: (MAKE["warm again"](life), take(life, MINE)),
    "resetting for its owner": lambda life: (MAKE["claimed"](life), begin_reset(life, keep=True)),
    "ended": lambda life: (MAKE["claimed"](life), life.end(ends.DEADLINE)),
    "failed": lambda life: life.end(ends.not_built("no")),
}


def made(name: str) -> InstanceState:
    life = InstanceState(Record())
    MAKE[name](life)
    assert life.phase.name.lower() == name.partition(" ")[0]
    return life
