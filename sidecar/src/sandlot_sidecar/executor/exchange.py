"""Exchanges the root of a generation that no owner has used: only the image below it is another one.

Its namespaces, its init, its runner, /proc and /dev stay. They depend on no image, and to build them anew is most of
what a root costs.
"""

from __future__ import annotations

import os

from . import disk_space, gpus, rootfs, syscalls
from .errors import ExecutorError
from .generation import Generation
from .namespaces import mounts
from .proof import FreshState, processes
from .root import open_layers, pivot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .boot import Boot
    from .image import Image
    from .limits import Limits
    from .namespaces import Mount

_KEPT = ("proc", "sys", "dev")


class Exchange:
    """Exchanges the root of one sandbox; no process of an earlier image stays, nor what one changed beside its root."""

    def __init__(self, boot: Boot, limits: Limits) -> None:
        self._boot = boot
        self._limits = limits
        self._beside: FreshState | None = None  # of a root that is not recorded: the state of all the rest

    def check(self) -> bool:
        """Compare a generation without an owner with a fresh one, beside its root: `run` then need not."""
        boot = self._boot
        boot.checked = boot.fresh is not None and boot.fresh.is_same_beside_root(boot.home)
        return boot.checked

    def run(self, image: Image) -> bool:
        """Return whether the root is over `image` now; then call `record`.

        If not, the caller ends the generation, which may be half changed, and builds another in other namespaces.
        """
        boot, limits = self._boot, self._limits
        fresh, former = boot.fresh, boot.plan.image
        if fresh is None or not boot.running or not image.is_outside(boot.home):
            return False
        try:
            if not (processes() == [] if boot.checked else fresh.is_same_beside_root(boot.home)):
                return False
            if limits.shm != boot.shm:
                _resize_shm(limits.shm)
                boot.shm = limits.shm
            boot.plan.image = image
            _change_root(boot, image, limits)
        except (OSError, ExecutorError) as error:
            os.write(2, f"sandlot: the root is built anew, not exchanged: {error}\n".encode())
            boot.plan.image = former
            return False
        boot.fresh, self._beside = None, fresh
        former.close()
        return True

    def record(self) -> None:
        """Record the fresh state over the exchanged root. Raises OSError and ExecutorError.

        The answer to `apply` need not wait for it, but every command of the owner has to.
        """
        boot, beside, self._beside = self._boot, self._beside, None
        if beside is None or boot.fresh is not None:
            return
        fresh = FreshState(home=boot.home, root=boot.root, beside=beside)
        if not fresh.has_same_mounts_beside_root(beside):
            raise ExecutorError("conflict", "the mounts below /proc or /dev are not those of a fresh sandbox")
        boot.fresh = fresh


def _resize_shm(size: int) -> None:
    shm = os.open("/dev/shm", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syscalls.resize_tmpfs(shm, size)
    finally:
        os.close(shm)


def _change_root(boot: Boot, image: Image, limits: Limits) -> None:
    plan, trees, kept = boot.plan, list[int](), dict[str, int]()
    part: tuple[int, int] | None = None
    submounts: list[tuple[Mount, int]] = []
    conditions = boot.conditions(boot.network, boot.hostname, limits.values)
    builder = rootfs.Builder(boot.home, plan, conditions, ahead=False)
    here = boot.home.mount_namespace()
    try:
        try:
            trees = image.clone(boot.home)
            syscalls.setns(boot.home.mnt, syscalls.CLONE_NEWNS)
            image.resolv, image.hosts = boot.network_files()
            if plan.store is not None:
                part = plan.store.clone_part()
            if image.is_host:
                for mount in mounts(boot.home):
                    if mount.kind not in rootfs.VIRTUAL and not builder.is_hidden(mount):
                        submounts.append((mount, syscalls.clone_mount(mount.point)))
        finally:
            syscalls.setns(here, syscalls.CLONE_NEWNS)
            os.chdir("/")
        for name in _KEPT:
            if os.path.ismount(f"/{name}"):  # /sys is none where the kernel refused a sysfs
                kept[name] = syscalls.clone_tree(f"/{name}")
        if plan.gpus is not None:
            kept[gpus.PLACE] = syscalls.clone_tree(f"/{gpus.PLACE}")
        builder.assemble_around(kept, trees, part, submounts)
        root = open_layers(overlay=True, part=builder.part)
        boot.root.close()
        boot.root = root
        pivot()
    finally:
        copies = [tree for _, tree in submounts]
        for fd in (here, *trees, *kept.values(), *copies, *([part[1]] if part is not None else [])):
            os.close(fd)
    boot.notes = [*boot.pod_notes(), *builder.notes]
    device = disk_space.layer_device() if plan.store is not None else 0
    boot.adopt(Generation(root, boot.init, number=builder.number, device=device, shm=boot.shm))
