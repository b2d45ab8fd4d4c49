"""Builds the sandbox's root in a fresh mount namespace: an overlay with an upper layer in a tmpfs or on a volume."""

from __future__ import annotations

import errno
import os
import stat

from . import container_mounts, devices, init_mounts, layers, syscalls
from .disk_space import files_limit
from .errors import SetupError
from .namespaces import mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home, Mount
    from .plan import Plan

# The tmpfs is mounted over the host's /sys, since no image is stored below that.
WORK = "/sys"
ROOT = f"{WORK}/root"
_OWN_MOUNTS = ("/proc", "/sys", "/dev")  # mounted anew for each root
VIRTUAL = frozenset(
    ("proc", "sysfs", "devtmpfs", "devpts", "tmpfs", "ramfs", "cgroup", "cgroup2", "mqueue", "hugetlbfs", "debugfs",
     "tracefs", "securityfs", "pstore", "bpf", "configfs", "fusectl", "autofs", "binfmt_misc", "rpc_pipefs", "nsfs",
     "efivarfs", "overlay", "squashfs", "selinuxfs")
)  # fmt: skip


class Root:
    """A built root: the descriptors of its hidden layers."""

    def __init__(self, *, upper: int, tmpfs: int, devpts: int) -> None:
        self.upper = upper
        self.tmpfs = tmpfs
        self.devpts = devpts

    def resize(self, size: int) -> None:
        """Set the size of the writable layer in bytes; raises OSError."""
        syscalls.resize_tmpfs(self.tmpfs, size)

    def space(self) -> tuple[int, int]:
        """Return the used bytes and the size of the writable layer."""
        info = os.fstatvfs(self.upper) if self.upper >= 0 else os.statvfs("/")
        return (info.f_blocks - info.f_bfree) * info.f_frsize, info.f_blocks * info.f_frsize

    def close(self) -> None:
        """Close the layers' descriptors; the mounts end with their mount namespace."""
        for fd in (self.upper, self.tmpfs, self.devpts):
            if fd >= 0:
                os.close(fd)


class Builder:
    """Assembles a root at ROOT in the current, fresh mount namespace."""

    def __init__(self, *, home: Home, plan: Plan, hostname: str, disk: int | None, shm: int) -> None:
        self.home = home
        self.plan = plan
        self.hostname = hostname
        self.disk = disk
        self.shm = shm
        self.part = WORK  # the directory that holds the upper layer and its work directory
        self.notes: list[str] = []

    def assemble(self) -> None:
        """Mount everything but what the init mounts; raises OSError."""
        # Cloned before the tmpfs covers /sys: a later copy would show the hidden layers inside the sandbox.
        sys_tree = syscalls.clone_tree("/sys") if self.home.rootless else -1
        size = f"size={self.disk}" if self.disk else "size=50%"
        before = mounts(self.home)
        options = f"{size},nr_inodes={files_limit(self.disk)},mode=755"
        syscalls.mount("sandlot", WORK, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
        for name in ("root", "base", "cover", "store"):
            os.mkdir(f"{WORK}/{name}")
        if self.plan.store is not None:
            self.part = f"{WORK}/store"
            self.plan.store.mount_part(self.part)
        else:
            os.mkdir(f"{WORK}/upper")
            os.mkdir(f"{WORK}/work")
        base = layers.BaseLayer(
            path=f"{WORK}/base", lowers=self.plan.lower, rootless=self.home.rootless, seen=self.plan.seen
        )
        for name in layers.MOUNT_POINTS:
            base.directory(name)
        if self.plan.host:
            for name, mode in layers.HOST_HIDDEN:
                base.empty(name, mode)
        elif not self.plan.target:
            for name in ("tmp", "var/tmp"):
                path = base.directory(name, 0o1777)
                if path is not None:
                    os.chmod(path, 0o1777)
        if not self.plan.target:
            self._network_files(base)
        for path in self.plan.mask:
            base.hide(path.lstrip("/"))
        if self.plan.target:
            self._add_container_mounts(before, base)
        if self.home.rootless:
            self._per_directory(base)
        else:
            if self.plan.target:
                _copy_root_owner(f"{self.part}/upper")
            self._overlay(f"lowerdir={self._lowers(base.path, '')}")
        self._submounts(before)
        self._cover(base)
        devices.build(
            f"{ROOT}/dev", shm_size=self.shm, rootless=self.home.rootless, all_there=self.plan.target
        )
        self._sysfs(sys_tree)

    def _network_files(self, base: layers.BaseLayer) -> None:
        if self.plan.network_files is None:
            self.plan.network_files = layers.network_files(self.plan.lower)
        resolv, hosts = self.plan.network_files
        layers.write_network_files(base, resolv=resolv, hosts=hosts, hostname=self.hostname)

    def _add_container_mounts(self, before: list[Mount], base: layers.BaseLayer) -> None:
        """Copy the container's writable mounts into the overlay, so that a reset drops changes to them."""
        if self.plan.container_mounts is None:
            image = f"{WORK}/image"
            os.mkdir(image)
            syscalls.mount("/", image, None, syscalls.MS_BIND)
            visible = [mount for mount in before if not self._is_hidden(mount)]
            self.plan.container_mounts = container_mounts.ContainerMounts(visible, image=image)
            self.notes += self.plan.container_mounts.notes
            syscalls.umount(image)
            os.rmdir(image)
        self.plan.container_mounts.write(base)

    def _overlay(self, lowers: str) -> None:
        options = f"{lowers},upperdir={self.part}/upper,workdir={self.part}/work"
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

    def _lowers(self, base: str, relative: str) -> str:
        paths = [base, *(os.path.join(lower, relative) for lower in self.plan.lower)]
        found = [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
        return ":".join(_escape(path) for path in found)

    def _per_directory(self, base: layers.BaseLayer) -> None:
        """Mount one overlay per top-level directory: in a user namespace, / itself has locked mounts."""
        syscalls.mount(ROOT, ROOT, None, syscalls.MS_BIND)
        os.chmod(ROOT, 0o755)
        if self.plan.top is None:
            self.plan.top = {name for lower in self.plan.lower for name in os.listdir(lower)}
        for name in sorted(self.plan.top | set(os.listdir(base.path))):
            self._top_entry(base, name)

    def _top_entry(self, base: layers.BaseLayer, name: str) -> None:
        made = f"{base.path}/{name}"
        found = base.find(name)
        if os.path.lexists(made) and not os.path.isdir(made):
            return
        if found is None or stat.S_ISDIR(found.st_mode):
            os.mkdir(f"{ROOT}/{name}")
            own = os.lstat(made) if os.path.isdir(made) else found
            os.chmod(f"{ROOT}/{name}", stat.S_IMODE(own.st_mode) | 0o700 if own is not None else 0o755)
            hidden = self.plan.host and name in ("tmp", "run")
            if found is None or hidden or name in layers.MOUNT_POINTS:
                base.to_cover = [entry for entry in base.to_cover if entry[0] != name]
                return
            self._top_directory(base, name)
        elif stat.S_ISLNK(found.st_mode):
            for lower in self.plan.lower:
                if os.path.islink(os.path.join(lower, name)):
                    os.symlink(os.readlink(os.path.join(lower, name)), f"{ROOT}/{name}")
                    break

    def _top_directory(self, base: layers.BaseLayer, name: str) -> None:
        if not any(os.access(os.path.join(lower, name), os.R_OK | os.X_OK) for lower in self.plan.lower):
            self.notes.append(f"root: /{name} is not readable by this user and is empty in the sandbox")
            return
        base.directory(name)
        for part in ("upper", "work"):
            os.mkdir(f"{WORK}/{part}/{name}")
        os.chmod(f"{WORK}/upper/{name}", stat.S_IMODE(os.stat(f"{base.path}/{name}").st_mode) | 0o700)
        options = (
            f"lowerdir={self._lowers(f'{base.path}/{name}', name)},upperdir={WORK}/upper/{name},"
            f"workdir={WORK}/work/{name},userxattr"
        )
        try:
            syscalls.mount("overlay", f"{ROOT}/{name}", "overlay", syscalls.MS_NODEV, options)
        except OSError:
            self._bind_read_only(name)

    def _bind_read_only(self, name: str) -> None:
        target = f"{ROOT}/{name}"
        source = os.path.join(self.plan.lower[0], name)
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
        if not (self.plan.host or self.plan.target) or self.home.rootless:
            return
        added = self.plan.container_mounts
        copied = added.copied if added is not None else {}
        read_only = added.read_only if added is not None else set[str]()
        for mount in before:
            if self._is_hidden(mount) or mount.point in copied or (mount.kind in VIRTUAL and self.plan.host):
                continue
            target = f"{ROOT}{mount.point}"
            if os.path.realpath(target) != target or not os.path.lexists(target):
                continue
            syscalls.mount(mount.point, target, None, syscalls.MS_BIND)
            if self.plan.host:
                syscalls.make_read_only(target)
            elif mount.point in read_only:
                container_mounts.remount_read_only(target, mount)

    def _is_hidden(self, mount: Mount) -> bool:
        gone = [f"/{name}" for name, _ in layers.HOST_HIDDEN] if self.plan.host else []
        return mount.point == "/" or any(
            _below(mount.point, path) for path in (*_OWN_MOUNTS, *gone, *self.plan.mask)
        )

    def _cover(self, base: layers.BaseLayer) -> None:
        covers = list(base.to_cover) + [(path.lstrip("/"), 0o755) for path in self.plan.mask]
        for number, (relative, mode) in enumerate(covers):
            target, source = f"{ROOT}/{relative}", f"{WORK}/cover/{number}"
            # Create it even if there is nothing to cover: the proof compares the layers of all roots.
            os.mkdir(source)
            os.chmod(source, mode)
            if not os.path.lexists(target) or os.path.islink(target):
                continue
            if not os.path.isdir(target):
                source = "/dev/null"
            syscalls.mount(source, target, None, syscalls.MS_BIND)


def _copy_root_owner(path: str) -> None:
    info = os.stat("/")
    os.chown(path, info.st_uid, info.st_gid)
    os.chmod(path, stat.S_IMODE(info.st_mode))


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def open_layers(*, overlay: bool, part: str) -> Root:
    """Open the hidden layers, which after `pivot` are reachable only by descriptor."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    if not overlay:
        return Root(upper=-1, tmpfs=-1, devpts=os.open("/dev/pts", flags))
    return Root(
        upper=os.open(f"{part}/upper", flags),
        tmpfs=os.open(WORK, flags),
        devpts=os.open(f"{ROOT}/dev/pts", flags),
    )


def pivot() -> None:
    """Make ROOT the root of this mount namespace, and unmount the host's root."""
    os.chdir(ROOT)
    try:
        syscalls.pivot_root(".", ".")
    except OSError as error:
        raise SetupError(f"cannot change the root: {error}; run where pivot_root is allowed") from error
    syscalls.umount(".")
    os.chdir("/")
