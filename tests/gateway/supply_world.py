"""Pools, bounds and a backend for the tests of SupplyCore."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec, PoolStatus
from sandlot_gateway.core.supply_settings import SupplySettings

ONE, OTHER, BIG = Template("one"), Template("other"), Template("one", memory=2 << 30)
SHARED, OWN = PoolSpec("shared", ONE, 2), PoolSpec("own", ONE, 2, owner="beta")
BOUNDS = SupplySettings(max_starts=3, max_waiting=6, start_timeout=60.0, spare_seconds=30.0, attempts=2)


@dataclass
class World:
    """The backend as the core sees it."""

    starting: Counter[str] = field(default_factory=Counter)
    keeping: Counter[str] = field(default_factory=Counter)  # those of them that will keep their image
    begun_at: dict[str, float | None] = field(default_factory=dict)
    prepared: dict[str, set[str]] = field(default_factory=dict)  # image -> nodes that have it

    def pools(self) -> list[PoolStatus]:
        return [PoolStatus(spec, self.starting[spec.name], self.keeping[spec.name]) for spec in (SHARED, OWN)]

    def pool(self, name: str) -> PoolSpec | None:
        return {"shared": SHARED, "own": OWN}.get(name)

    def begun(self, instance_id: str) -> float | None:
        return self.begun_at.get(instance_id, 0.0)

    def nodes_with(self, image: str) -> set[str]:
        return self.prepared.get(image, set())


def new_instance(name: str, template: Template, *, pool: str | None = None) -> Instance:
    return Instance(name, template, f"unix:/{name}", "token", pool=pool)
