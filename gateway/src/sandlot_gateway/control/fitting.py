"""Selects the pool whose template fits a create that names none, and says why one starts cold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sandlot_contract.template import Template

from sandlot_gateway.core.instances import PoolSpec

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Wanted:
    """The fields of a create; None leaves the choice to the server."""

    image: str
    cpu_cores: float | None
    memory_gb: float | None
    disk_size_gb: float | None
    pids: int | None
    gpu_count: int
    gpu_type: str | None


@dataclass(frozen=True, slots=True)
class Fit:
    """`template` of the pool that fits, if any; `missed` is `WORD: why` for a cold start, None without a pool."""

    template: Template | None = None
    missed: str | None = None


def fit(wanted: Wanted, *, pools: Iterable[PoolSpec], ready: Callable[[PoolSpec], int]) -> Fit:
    """Select from `pools` (those that the caller may use): first one with ready instances, then the default's.

    Pools of its image go before those without an image, which serve any.
    """
    filled = [pool for pool in pools if pool.size]
    same_image = [pool for pool in filled if pool.template.image == wanted.image]
    same_image = same_image or [pool for pool in filled if not pool.template.image]
    fitting = [pool for pool in same_image if difference(wanted, pool) is None]
    if not fitting:
        return Fit(missed=difference(wanted, same_image[0]) if same_image else None)
    usual = Template(image=wanted.image)

    def order(pool: PoolSpec) -> tuple[bool, bool, int, str]:
        return not ready(pool), pool.template != usual, pool.template.memory, pool.name

    chosen = min(fitting, key=order)
    return Fit(chosen.template, missed(chosen, ready=ready(chosen)))


def missed(pool: PoolSpec, *, ready: int) -> str:
    """Return why a create that fits this pool starts cold."""
    if ready:
        return f"taken: what pool {pool.name!r} had ready was claimed by other creates at the same moment"
    return f"none_ready: pool {pool.name!r} has none of its {pool.size} ready"


def difference(wanted: Wanted, pool: PoolSpec) -> str | None:
    """Return `FIELD: why` for the first field that differs from a pool that serves the image, or None."""
    has = pool.template
    said = {
        "cpu_cores": (wanted.cpu_cores, has.cpu),
        "memory_gb": (wanted.memory_gb, has.memory / _GIB),
        "disk_size_gb": (wanted.disk_size_gb, has.disk / _GIB),
        "pids": (wanted.pids, has.pids),
        "gpu_count": (wanted.gpu_count, has.gpu_count),
    }
    for field, (number, its) in said.items():
        # Tolerates only rounding on the wire: a limit in the request is exact.
        if number is not None and not math.isclose(number, its, rel_tol=1e-6):
            return f"{field}: the request has {number:g}, pool {pool.name!r} has {its:g}"
    if wanted.gpu_type is not None and wanted.gpu_type != has.gpu_type:
        return f"gpu_type: the request has {wanted.gpu_type!r}, pool {pool.name!r} has {has.gpu_type!r}"
    if has.runtime_class is not None:
        # Another runtime is another isolation boundary: a create gets it only by the pool's name.
        return f"runtime_class: pool {pool.name!r} has {has.runtime_class!r}; name the pool to use it"
    return None
