"""The image below a sandbox's writable layer: the config's root, or one that a claim names."""

from __future__ import annotations

import errno
import os
import stat

from .. import kernel
from . import syscalls
from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import container_mounts
    from .layers import Entry
    from .namespaces import Home
    from .shared import Shared


# What a kernel may do by default, and a checkpoint of the files cannot have: it reads the layer, not the root.
_PLAIN = ",redirect_dir=off,metacopy=off,index=off"


class Image:
    """One image, and what its first root read for all its later ones."""

    def __init__(
        self,
        spec: dict[str, Any],
        *,
        in_pod: bool,
        shared: Shared | None = None,
        former: Image | None = None,
    ) -> None:
        """`spec`: `lower` (uppermost layer first), `mask`, `workdir`; `claimed`: a claim names it, checked by the server.

        `/` is the machine's own root, in a pod the container's. `shared`: files of another sandbox above them;
        `former`: the image whose directories it takes, open until a `clone` succeeds. Raises SetupError.
        """
        self.shared = shared
        self._former = former
        self.options = _PLAIN if shared is not None and not kernel.is_gvisor() else ""  # of the overlay
        self._spec = spec
        self._in_pod = in_pod
        lower = spec.get("lower") or ["/"]
        if not isinstance(lower, list) or not all(isinstance(p, str) and p.startswith("/") for p in lower):
            raise SetupError("root.lower must be a list of absolute paths")
        self.lower: list[str] = lower
        self.workdir = str(spec.get("workdir") or "/")  # a container runtime creates it
        own_root = lower == ["/"]
        # Only there paths to hide lead to what is to be hidden: an image's are its own.
        self.mask = [os.path.normpath(path) for path in spec.get("mask") or []] if own_root else []
        self.is_host = own_root and not in_pod
        self.is_container = own_root and in_pod
        claimed = bool(spec.get("claimed"))
        self._is_outside = shared is not None or (claimed and not own_root)
        self._namespace = -1  # a mount namespace that holds its directories and nothing else
        for path in lower:
            if not claimed and not os.path.isdir(path):
                raise SetupError(f"root.lower: {path} is not a directory")
        # Read for the first root and reused for all later ones.
        self.container_mounts: container_mounts.ContainerMounts | None = None
        self.resolv: bytes | None = None
        self.hosts: bytes | None = None
        self.seen: dict[str, Entry | None] = {}
        self.top: set[str] | None = None

    def is_outside(self, home: Home) -> bool:
        """Whether it is a claimed image whose directories only the sidecar's own mount namespace sees."""
        return self._is_outside and not home.rootless

    def below(self, shared: Shared) -> Image:
        """Return this image with the files of another sandbox above it, which are closed with it; close this one later."""
        return Image({**self._spec, "claimed": True}, in_pod=self._in_pod, shared=shared, former=self)

    def clone(self, home: Home) -> list[int]:
        """Return detached copies of a claimed image's directories, [] where their paths lead to them. Raises OSError.

        They are mounted after the executor has left the sidecar's namespace, which alone sees such mounts. A shared layer
        is the first.
        """
        if not self.is_outside(home):
            return []
        if self._namespace < 0:
            self._hold(home)
        return self._clone_held(first=0)

    def _clone_held(self, *, first: int) -> list[int]:
        syscalls.setns(self._namespace, syscalls.CLONE_NEWNS)
        count = len(self.lower) + (self.shared is not None)
        return _clone_all([f"/{number}" for number in range(first, count)])

    def _lowers(self, home: Home) -> list[int]:
        former = self._former
        if former is not None and former._namespace >= 0:
            return former._clone_held(first=int(former.shared is not None))
        home.enter_original_mounts()
        return _clone_all(self.lower)

    def _hold(self, home: Home) -> None:
        """Resolve the paths, once: the root of a reset must be over the same directories, whatever has their names."""
        trees = [] if self.shared is None else [self.shared.clone()]
        try:
            trees += self._lowers(home)
            # A copy of the sidecar's own mounts would hold those of other images, too.
            home.enter_copy_of_empty_mounts()
            for number, tree in enumerate(trees):
                try:
                    os.mkdir(f"/{number}")
                except FileExistsError:  # an earlier image's, in a namespace with mounts of its own
                    pass
                syscalls.attach_tree(tree, f"/{number}")
            # A copy of a shared mount is its peer: what is unmounted below the one would go from the other.
            syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
            self._namespace = home.mount_namespace()
            self._former = None  # not before: a `clone` that failed is repeated over the same directories
        finally:
            for tree in trees:
                os.close(tree)

    def close(self) -> None:
        """Let go of its directories."""
        if self.shared is not None:
            self.shared.close()
        if self._namespace >= 0:
            os.close(self._namespace)
            self._namespace = -1


def _clone_all(paths: list[str]) -> list[int]:
    trees: list[int] = []
    try:
        for path in paths:
            trees.append(syscalls.clone_tree(path))
            if not os.fstat(trees[-1]).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "its directory was removed", path)
    except OSError:
        for tree in trees:
            os.close(tree)
        raise
    return trees


def attach(trees: list[int], directory: str) -> list[str]:
    """Mount detached copies below a directory and return their paths; raises OSError."""
    paths = []
    for number, tree in enumerate(trees):
        paths.append(f"{directory}/image-{number}")
        os.mkdir(paths[-1])
        syscalls.attach_tree(tree, paths[-1])
    return paths


def move_out(paths: list[str], directory: str) -> None:
    """Mount them over a directory of the earlier root, which takes them along when it is unmounted.

    Unlike `detach`, this does not wait for all cores.
    """
    for path in paths:
        syscalls.move_mount(path, directory)
        os.rmdir(path)


def detach(paths: list[str]) -> None:
    """Unmount what the overlay holds by now, since the proof reads all that is in the hidden layers."""
    for path in paths:
        syscalls.umount(path)
        os.rmdir(path)


def copy_owner(source: str, path: str) -> None:
    """Give a directory another one's owner and mode; raises OSError."""
    info = os.stat(source)
    os.chown(path, info.st_uid, info.st_gid)
    os.chmod(path, stat.S_IMODE(info.st_mode))


def joined(paths: list[str]) -> str:
    """Return the paths as an option of a mount has several."""
    return ":".join(_escape(path) for path in paths)


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
