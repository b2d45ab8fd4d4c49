"""Instances, pools and their status: the plain values that backends and the core exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template


@dataclass(slots=True)
class Instance:
    """One sidecar that the backend has started or found after a restart."""

    id: InstanceId
    template: Template
    address: str  # "unix:/path" or "10.0.0.7:8700"
    token: str = field(repr=False)
    pool: str | None = None  # the name of the pool it was started for


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool of warm instances of one template, for one tenant or shared."""

    name: str
    template: Template
    size: int
    owner: str | None = None  # the tenant; None: shared
    # autoscaling limits, `size` is then the current target; None: fixed size
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """The result of an image check. Without `checked` no one has asked the registry whether the image exists."""

    details: str
    checked: bool = True


@dataclass(frozen=True, slots=True)
class PoolStatus:
    spec: PoolSpec
    starting: int
    failures: int = 0
    message: str | None = None  # why the last start failed
