"""Defines the content of each image, for the Dockerfiles and the OCI archives."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandlot_contract.ports import (
    CONTROLLER_PORT,
    GATEWAY_PORT,
    NODE_AGENT_PORT,
    SIDECAR_PORT,
    WEBHOOK_PORT,
)

DEBIAN = "bookworm"
REGISTRY = "sandlot.test"
TAG = "dev"
# Python packages of an image, on PYTHONPATH because the sidecar's `-S` omits site-packages.
TARGET = "/opt/sandlot"
# The paths of Debian's Python.
STDLIB = "/usr/lib/python3.11"
# The bytecode bundle, before TARGET on PYTHONPATH.
BUNDLE = "/opt/sandlot.zip"
# The first process of every sandbox's container, in a directory of its own, since pods mount only that.
HOLDER = "/opt/sandlot-holder/holder"
# 2026-01-01: the maximum mtime in an image, for reproducible builds.
EPOCH = 1767225600
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Files of Debian packages that no image needs.
LEFT_OUT = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
    "/usr/share/lintian/*",
)


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image: Debian packages, our Python packages in dependency order, and its entry point."""

    name: str
    title: str
    debian: tuple[str, ...]
    packages: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = "0:0"
    ports: tuple[int, ...] = ()
    optimise: tuple[int, ...] = (0,)
    bundle: tuple[str, ...] = ()  # modules and packages whose bytecode of level 2 is in BUNDLE
    holder: bool = False  # contains HOLDER
    env: dict[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """Return the image's name in the test cluster."""
        return f"{REGISTRY}/{self.name}:{TAG}"

    @property
    def optimised(self) -> tuple[int, ...]:
        """Return the bytecode levels that Debian's library lacks."""
        return tuple(level for level in self.optimise if level > 0)

    @property
    def environment(self) -> dict[str, str]:
        """Return the image's environment."""
        places = [BUNDLE, TARGET] if self.bundle else [TARGET]
        python = {"PYTHONPATH": ":".join(places), "PYTHONUNBUFFERED": "1"} if self.packages else {}
        return {"PATH": PATH, **python, **self.env}


RUNTIME = ("python3", "ca-certificates")
# The sidecar's imports from the library, without `encodings`, which finds codecs only in its own directory.
LIBRARY = (
    "__future__",
    "_weakrefset",
    "asyncio",
    "collections",
    "contextlib",
    "contextvars",
    "ctypes",
    "enum",
    "functools",
    "heapq",
    "json",
    "keyword",
    "operator",
    "reprlib",
    "selectors",
    "signal",
    "socket",
    "struct",
    "threading",
    "types",
    "warnings",
    "weakref",
)

IMAGES = (
    Image(
        name="gateway",
        title="Sandlot's gateway",
        debian=RUNTIME,
        packages=("contract", "kube", "sidecar", "sdk", "gateway"),
        extras=("kubernetes", "ssh", "s3", "mcp", "traces"),
        entrypoint=("python3", "-m", "sandlot_gateway"),
        user="65532:65532",
        ports=(WEBHOOK_PORT, GATEWAY_PORT),
    ),
    Image(
        name="controller",
        title="Sandlot's Kubernetes controller",
        debian=RUNTIME,
        packages=("contract", "kube", "controller"),
        entrypoint=("python3", "-m", "sandlot_controller"),
        user="65532:65532",
        ports=(CONTROLLER_PORT,),
    ),
    Image(
        name="sidecar",
        title="Sandlot's sidecar: root, because it enters another container's namespaces",
        debian=RUNTIME,
        packages=("contract", "sidecar"),
        entrypoint=("python3", "-S", "-P", "-OO", "-m", "sandlot_sidecar", "--config-env"),
        ports=(SIDECAR_PORT,),
        # `-OO` needs its own bytecode: otherwise each of a node's 256 sidecars compiles the library at start.
        optimise=(0, 2),
        bundle=("sandlot_contract", "sandlot_sidecar", *LIBRARY),
        holder=True,
    ),
    Image(
        name="node-agent",
        title="Sandlot's node agent: root, because it mounts images for the pods of its node",
        debian=(*RUNTIME, "libstdc++6"),  # of gRPC
        packages=("contract", "node"),
        entrypoint=("python3", "-m", "sandlot_node"),
        ports=(NODE_AGENT_PORT,),
    ),
    Image(
        name="python",
        title="A sandbox with Python and a shell",
        debian=("python3", "python-is-python3", "ca-certificates", "procps"),
        command=("python3",),
    ),
)


def by_name(name: str) -> Image:
    """Return the image of that name. Raises KeyError."""
    for image in IMAGES:
        if image.name == name:
            return image
    raise KeyError(f"unknown image {name!r}; use one of {', '.join(image.name for image in IMAGES)}")
