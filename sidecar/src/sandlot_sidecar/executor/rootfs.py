"""Builds the sandbox's root in a fresh mount namespace: an overlay with an upper layer in a tmpfs or on a volume."""

from __future__ import annotations

import errno
import os
import stat

from .. import kernel
from . import container_mounts, devices, gpus, image, init_mounts, layers, syscalls
from .disk_space import files_limit
from .errors import SetupError
from .namespaces import is_below, mounts
from .root import ROOT, WORK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .conditions import Conditions
    from .namespaces import Home, Mount
    from .plan import Plan

_OWN_MOUNTS = ("/proc", "/sys", "/dev")  # mounted anew for each root
VIRTUAL = frozenset(
    ("proc", "sysfs", "devtmpfs", "devpts", "tmpfs", "ramfs", "cgroup", "cgroup2", "mqueue", "hugetlbfs", "debugfs",
     "tracefs", "securityfs", "pstore", "bpf", "configfs", "fusectl", "autofs", "binfmt_misc", "rpc_pipefs", "nsfs",
     "efivarfs", "overlay", "squashfs", "selinuxfs")
)  # fmt: skip


class Builder:
    """Assembles a root at ROOT in the current, fresh mount namespace."""

    def __init__(self, home: Home, plan: Plan, conditions: Conditions, *, ahead: bool) -> None:
        """`ahead`: for a generation that has not begun."""
        self.home = home
        self.plan = plan
        self.image = plan.image
        self.lower = plan.image.lower
        self.conditions = conditions
        self.ahead = ahead
        self.part = WORK  # the directory that holds the upper layer and its work directory
        self.number = 0  # of the part in the store
        self.notes: list[str] = []
        self._driver = ""  # where the GPU driver's files are mounted

    def assemble(self, trees: list[int]) -> None:
        """Mount everything but what the init mounts, over the image's `trees` if there are any; raises OSError."""
        # Cloned before the tmpfs covers /sys: a later copy would show the hidden layers inside the sandbox.
        sys_tree = syscalls.clone_tree("/sys") if self.home.rootless else -1
        before = mounts(self.home)
        self._work()
        if self.plan.store is not None:
            self.number = self.plan.store.mount_part(self.part, ahead=self.ahead)
        base, attached = self._layers(trees, before)
        image.detach(attached)
        self._submounts(before)
        self._cover(base)
        devices.build(
            f"{ROOT}/dev",
            shm_size=self.conditions.shm,
            rootless=self.home.rootless,
            all_there=self.plan.target,
            more=self.plan.gpus.devices if self.plan.gpus is not None else None,
        )
        if self.plan.gpus is not None:
            self.plan.gpus.mount_driver(self._driver)
        self._sysfs(sys_tree)

    def assemble_around(
        self,
        kept: dict[str, int],
        trees: list[int],
        part: tuple[int, int] | None,
        submounts: list[tuple[Mount, int]],
    ) -> None:
        """Mount a root over the image's `trees` that has the current root's mounts, `kept` by their names.

        `part`: the store's, with its number; `submounts`: copies of the machine's. Raises OSError.
        """
        self._work()
        if part is not None:
            self.number = part[0]
            syscalls.attach_tree(part[1], self.part)
        base, attached = self._layers(trees, [])
        for mount, tree in submounts:
            target = f"{ROOT}{mount.point}"
            if os.path.realpath(target) == target and os.path.lexists(target):
                syscalls.attach_tree(tree, target)
                syscalls.make_read_only(target)
        self._cover(base)
        if kernel.is_gvisor():
            image.detach(attached)
        else:
            image.move_out(attached, "/dev")  # last: covers are of its devices
        for name, tree in kept.items():
            syscalls.attach_tree(tree, self._driver if name == gpus.PLACE else f"{ROOT}/{name}")

    def _work(self) -> None:
        disk = self.conditions.disk
        options = f"size={disk or '50%'},nr_inodes={files_limit(disk)},mode=755"
        syscalls.mount("sandlot", WORK, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
        for name in ("root", "base", "cover", "store"):
            os.mkdir(f"{WORK}/{name}")
        if self.plan.store is not None:
            self.part = f"{WORK}/store"
            return
        os.mkdir(f"{WORK}/upper")
        os.mkdir(f"{WORK}/work")

    def _layers(self, trees: list[int], before: list[Mount]) -> tuple[layers.BaseLayer, list[str]]:
        """Mount the layers; return the base layer and the mount points of the image's directories."""
        attached = image.attach(trees, WORK)
        above = attached[:1] if self.image.shared is not None else []
        self.lower = attached[len(above) :] or self.lower
        base = layers.BaseLayer(
            path=f"{WORK}/base", lowers=self.lower, rootless=self.home.rootless, seen=self.image.seen
        )
        for name in layers.MOUNT_POINTS:
            base.mount_point(name)
        if self.image.is_host:
            for name, mode in layers.HOST_HIDDEN:
                base.empty(name, mode)
        elif not self.image.is_container:
            for name in ("tmp", "var/tmp"):
                base.ensure(name, 0o1777)
            base.ensure(self.image.workdir, 0o755)
        if not self.image.is_container:
            self._network_files(base)
        if self.plan.gpus is not None:
            self._driver = _driver_place(base)
        for path in self.image.mask:
            base.hide(path.lstrip("/"))
        if self.image.is_container:
            self._add_container_mounts(before, base)
        if self.home.rootless:
            self._per_directory(base)
        else:
            image.copy_owner(self.lower[0], f"{self.part}/upper")
            self._overlay(f"lowerdir={image.joined([*above, base.path, *self.lower])}")
        return base, attached

    def _network_files(self, base: layers.BaseLayer) -> None:
        of_image = self.image
        if of_image.resolv is None:
            of_image.resolv = layers.read_resolv()
        if of_image.hosts is None:
            of_image.hosts = layers.read_hosts(None if self.plan.target else base)
        layers.write_network_files(
            base, resolv=of_image.resolv, hosts=of_image.hosts, hostname=self.conditions.hostname
        )

    def _add_container_mounts(self, before: list[Mount], base: layers.BaseLayer) -> None:
        """Copy the container's writable mounts into the overlay, so that a reset drops changes to them."""
        if self.image.container_mounts is None:
            own = f"{WORK}/image"
            os.mkdir(own)
            syscalls.mount("/", own, None, syscalls.MS_BIND)
            visible = [mount for mount in before if not self.is_hidden(mount)]
            self.image.container_mounts = container_mounts.ContainerMounts(visible, image=own)
            self.notes += self.image.container_mounts.notes
            image.detach([own])
        self.image.container_mounts.write(base)

    def _overlay(self, lowers: str) -> None:
        options = f"{lowers},upperdir={self.part}/upper,workdir={self.part}/work{self.image.options}"
        if self.plan.store is not None:
            try:
                # Otherwise unmounting syncs all dirty pages of the volume's file system, of every writer: seconds.
                syscalls.mount("overlay", ROOT, "overlay", syscalls.MS_NODEV, f"{options},volatile")
                return
            except OSError as error:
                if error.errno != errno.EINVAL:  # Linux before 5.10
                    raise
        syscalls.mount("overlay", ROOT, "overlay", syscalls.MS_NODEV, options)

    def _sysfs(self, tree: int) -> None:
        target = f"{ROOT}/sys"
        if tree < 0:
            init_mounts.mount_sysfs(ROOT)
            return
        syscalls.attach_tree(tree, target)
        os.close(tree)
        syscalls.make_read_only(target)
        init_mounts.mask_sysfs(target)

    def _per_directory(self, base: layers.BaseLayer) -> None:
        """Mount one overlay per top-level directory: in a user namespace, / itself has locked mounts."""
        for lower in self.lower:
            os.stat(lower)  # without a whole layer the root would be empty
        syscalls.mount(ROOT, ROOT, None, syscalls.MS_BIND)
        os.chmod(ROOT, 0o755)
        if self.image.top is None:
            self.image.top = {name for lower in self.lower for name in os.listdir(lower)}
        for name in sorted(self.image.top | set(os.listdir(base.path))):
            self._top_entry(base, name)

    def _top_entry(self, base: layers.BaseLayer, name: str) -> None:
        made = f"{base.path}/{name}"
        found = base.find(name)
        if not os.path.isdir(made) and (found is None or os.path.lexists(made)):
            return
        if found is None or stat.S_ISDIR(found.st_mode) or name in layers.MOUNT_POINTS:
            os.mkdir(f"{ROOT}/{name}")
            own = os.lstat(made) if os.path.isdir(made) else found
            os.chmod(f"{ROOT}/{name}", stat.S_IMODE(own.st_mode) | 0o700 if own is not None else 0o755)
            hidden = self.image.is_host and name in ("tmp", "run")
            if found is None or hidden or name in layers.MOUNT_POINTS:
                base.to_cover = [entry for entry in base.to_cover if entry[0] != name]
                return
            self._top_directory(base, name)
        elif stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(base.paths(name)[0]), f"{ROOT}/{name}")

    def _top_directory(self, base: layers.BaseLayer, name: str) -> None:
        paths = base.paths(name)  # not a layer's link, which would lead out of the image
        if not any(os.access(path, os.R_OK | os.X_OK) for path in paths):
            self.notes.append(f"root: /{name} is not readable by this user and is empty in the sandbox")
            return
        base.directory(name)
        for part in ("upper", "work"):
            os.mkdir(f"{WORK}/{part}/{name}")
        os.chmod(f"{WORK}/upper/{name}", stat.S_IMODE(os.stat(f"{base.path}/{name}").st_mode) | 0o700)
        options = (
            f"lowerdir={image.joined([f'{base.path}/{name}', *paths])},upperdir={WORK}/upper/{name},"
            f"workdir={WORK}/work/{name},userxattr"
        )
        try:
            syscalls.mount("overlay", f"{ROOT}/{name}", "overlay", syscalls.MS_NODEV, options)
        except OSError:
            self._bind_read_only(name, source=paths[0])

    def _bind_read_only(self, name: str, *, source: str) -> None:
        target = f"{ROOT}/{name}"
        try:
            syscalls.mount(source, target, None, syscalls.MS_BIND | syscalls.MS_REC)
        except OSError as error:
            self.notes.append(f"root: /{name} is empty in the sandbox: {error.strerror}")
            return
        try:
            syscalls.make_read_only(target)
        except OSError:
            syscalls.umount(target)
            self.notes.append(f"root: /{name} has mounts below it and is empty in the sandbox")
            return
        self.notes.append(f"root: /{name} has mounts below it and is read-only in the sandbox")

    def _submounts(self, before: list[Mount]) -> None:
        if not (self.image.is_host or self.image.is_container) or self.home.rootless:
            return
        added = self.image.container_mounts
        copied = added.copied if added is not None else {}
        read_only = added.read_only if added is not None else set[str]()
        for mount in before:
            if (
                self.is_hidden(mount)
                or mount.point in copied
                or (mount.kind in VIRTUAL and self.image.is_host)
            ):
                continue
            target = f"{ROOT}{mount.point}"
            if os.path.realpath(target) != target or not os.path.lexists(target):
                continue
            syscalls.mount(mount.point, target, None, syscalls.MS_BIND)
            if self.image.is_host:
                syscalls.make_read_only(target)
            elif mount.point in read_only:
                container_mounts.remount_read_only(target, mount)

    def is_hidden(self, mount: Mount) -> bool:
        """Return whether the root has no place for a mount of the machine, or of the container."""
        gone = [f"/{name}" for name, _ in layers.HOST_HIDDEN] if self.image.is_host else []
        return mount.point == "/" or any(
            is_below(mount.point, path) for path in (*_OWN_MOUNTS, *gone, *self.image.mask)
        )

    def _cover(self, base: layers.BaseLayer) -> None:
        covers = list(base.to_cover) + [(path.lstrip("/"), 0o755) for path in self.image.mask]
        for number, (relative, mode) in enumerate(covers):
            target, source = f"{ROOT}/{relative}", f"{WORK}/cover/{number}"
            # Create it even if there is nothing to cover: the proof compares the layers of all roots.
            os.mkdir(source)
            os.chmod(source, mode)
            if not os.path.lexists(target) or os.path.islink(target):
                continue
            if self.image.shared is not None and os.path.realpath(target) != target:
                continue  # code may have put a link there, which leads anywhere
            if not os.path.isdir(target):
                source = "/dev/null"
            syscalls.mount(source, target, None, syscalls.MS_BIND)


def _driver_place(base: layers.BaseLayer) -> str:
    """Create the directory for the GPU driver's files, which an image may have behind links. Raises SetupError."""
    path = base.resolve(gpus.PLACE)
    if not path or base.directory(path) is None:
        raise SetupError(
            f"the image has a file at or above /{gpus.PLACE}, where the GPU driver's files are mounted"
        )
    return f"{ROOT}/{path}"
