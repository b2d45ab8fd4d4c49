"""Who used a slot so far, and the decision whether a pool takes it back for another sandbox of that tenant."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_contract.reuse import ReusePolicy

from .instances import Instance, Kind, PoolSpec, by_template


@dataclass(frozen=True, slots=True)
class Binding:
    """The tenant of all owners of a slot so far, and the number of generations that had one."""

    tenant: str | None = None
    uses: int = 0

    def used_by(self, tenant: str) -> Binding:
        """Return the binding with one more generation."""
        return Binding(tenant, self.uses + 1)


UNBOUND = Binding()


def takes_back(
    spec: PoolSpec, instance: Instance, binding: Binding, *, now: float, kind: Kind = by_template
) -> bool:
    """Return whether the pool takes the instance back after a reset. `now` in Unix seconds.

    An instance of unknown age or tenant is not reused, nor one with GPUs, whose memory no reset compares.
    """
    reuse = spec.reuse
    return (
        reuse.policy is ReusePolicy.TENANT
        and binding.tenant is not None
        and spec.owner in (None, binding.tenant)
        and kind(spec.template) == kind(instance.template)
        and not instance.template.gpu_count
        and binding.uses < reuse.max_uses
        and instance.started_at is not None
        and now - instance.started_at < reuse.max_age
    )
