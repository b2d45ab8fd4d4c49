"""What a slot is made from and what pools keep: instances, pools; plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template


@dataclass(slots=True)
class Instance:
    """One sidecar that the backend has started or found again."""

    id: InstanceId
    template: Template
    address: str  # "unix:/path" or "10.0.0.7:8700"
    token: str = field(repr=False)
    pool: str | None = None  # the name of the pool it was started for


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A number of warm instances of one template, kept by the backend for one tenant or for all of them."""

    name: str
    template: Template
    size: int
    owner: str | None = None  # the tenant; None: shared
    # Of a size that follows the claims, which `size` then is now; None: fixed.
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """What can be said of an image that sandboxes may have. Not `checked`: nothing has looked whether it exists."""

    details: str
    checked: bool = True


@dataclass(frozen=True, slots=True)
class PoolStatus:
    spec: PoolSpec
    starting: int
    failures: int = 0
    message: str | None = None  # why the last start failed
