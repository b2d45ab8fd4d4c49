"""Instances, pools and their status: the plain values that backends and the core exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sandlot_contract import reuse
from sandlot_contract.ids import InstanceId
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template

Kind = Callable[[Template], str]


@lru_cache(4096)  # a create asks for the kinds of its template, of its slot and of pools many times
def by_template(template: Template) -> str:
    """Return the kind of an instance that keeps its image."""
    return template.key


@lru_cache(4096)
def by_size(template: Template) -> str:
    """Return the kind of an instance that takes any image with its claim."""
    return template.size_class


def by_size_or_gpus(template: Template) -> str:
    """Return the kind of an instance that takes any image with its claim, unless it has GPUs."""
    return by_template(template) if template.gpu_count else by_size(template)


@dataclass(frozen=True, slots=True)
class Laid:
    """The image that a claim has laid over an instance's own. `id` is what its sidecar calls it."""

    id: str
    name: str | None = None  # None: another gateway laid it


@dataclass(slots=True)
class Instance:
    """One sidecar that the backend has started or found after a restart."""

    id: InstanceId
    template: Template
    address: str  # "unix:/path" or "10.0.0.7:8700"
    token: str = field(repr=False)
    key_id: str | None = field(
        default=None, kw_only=True
    )  # of the master key that its tokens are of; None: the only one
    pool: str | None = None  # the name of the pool it was started for
    started_at: float | None = None  # Unix time; None: unknown
    node: str | None = None
    laid: Laid | None = None  # None: it has the image of its template
    refused: str | None = field(default=None, compare=False)  # the last image that it could not lay, by id
    keeps_image: bool = False  # where others take any image: it serves creates of its template's image only

    @property
    def image(self) -> str | None:
        """The name of the image that it has now; None if unknown."""
        return self.template.image if self.laid is None else self.laid.name

    def has_own(self, image: str) -> bool:
        """Return whether it has this image without a claim having laid it."""
        return self.laid is None and self.template.image == image


@dataclass(frozen=True, slots=True)
class Reuse:
    """How a pool reuses its instances: for at most `max_uses` sandboxes, and until `max_age` seconds after its start."""

    policy: ReusePolicy = reuse.POLICY
    max_uses: int = reuse.MAX_USES
    max_age: float = float(reuse.MAX_AGE)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool of warm instances of one template, for one tenant or shared."""

    name: str
    template: Template
    size: int
    owner: str | None = None  # the tenant; None: shared
    # autoscaling limits, `size` is then the current target; None: fixed size
    bounds: tuple[int, int] | None = None
    reuse: Reuse = Reuse()


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """The result of an image check. Without `checked` no one has asked the registry whether the image exists."""

    details: str
    checked: bool = True


@dataclass(frozen=True, slots=True)
class PoolStatus:
    spec: PoolSpec
    starting: int
    keeping_image: int = 0  # those of `starting` that will serve creates of the pool's image only
    failures: int = 0
    message: str | None = None  # why the last start failed
    empty: bool = False  # none of its instances exist, as far as known
    resetting: Mapping[str, int] = field(default_factory=dict)  # tenant -> its used instances on the way back
