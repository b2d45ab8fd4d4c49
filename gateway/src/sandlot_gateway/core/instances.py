"""What a slot is made from and what pools keep: templates, instances, pools; plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

# Processes of a sandbox when nobody says otherwise. At 4,096 a fork bomb kept two cores at a load of 1,000 for two
# minutes after its end was asked for; builds and test suites stay well below 1,024.
PIDS = 1024


@dataclass(frozen=True, slots=True)
class Template:
    """What makes two warm instances interchangeable. Everything else (env, network, ...) comes with the claim."""

    image: str
    cpu: float = 1.0  # cores
    memory: int = 1 << 30  # bytes
    disk: int = 5 << 30  # bytes
    pids: int = PIDS
    gpu_count: int = 0
    gpu_type: str | None = None
    runtime_class: str | None = None

    @property
    def key(self) -> str:
        """A short stable name; equal templates have equal keys."""
        import hashlib

        text = "|".join(str(getattr(self, name)) for name in self.__slots__)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Instance:
    """One sidecar that the backend has started or found again."""

    id: str  # "i-" and 16 hex digits
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
