"""A sandbox in a pod's container: what differs when the kubelet has started the container."""

from __future__ import annotations

import os

from .. import kernel
from . import seccomp, syscalls, target, target_groups, users
from .confinement import Confinement
from .errors import SetupError
from .store import PLACE, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .cgroups import Sandbox as SandboxGroup
    from .namespaces import Home


class Pod:
    """The entered container: its processes' restrictions, its control group, and the store for changed files."""

    def __init__(self, *, home: Home, pid: int, root: dict[str, Any]) -> None:
        """Enter the container permanently. Raises OSError and SetupError."""
        self.fd = os.pidfd_open(pid)
        self.confinement = Confinement(home=home, pid=pid)
        self.notes = list(self.confinement.notes)
        # Installed on the executor itself, so that no process of the sandbox is without the filter.
        self.guarded = kernel.is_gvisor() and seccomp.guard_gvisor()
        self.store = self._open_store(root)
        self.groups_hidden = home.other_cgroup_namespace(pid)
        self.group: SandboxGroup | None = target_groups.enter(home, pid)
        workdir = target.workdir(home, pid)
        home.enter_target(pid)
        if self.store is not None:
            self._attach_store(home)
        known = users.by_uid(self.confinement.uid)
        self.environment = target.environment(home, pid, home_directory=known.home)
        self.workdir = workdir
        self._user = self.confinement.user(home_directory=known.home, name=known.name)
        users.set_default(self._user)

    def set_default_user(self, *, of_container: bool) -> None:
        """Set the user of commands that name none: the container's, or root in a claimed image."""
        users.set_default(self._user if of_container else None)

    def _open_store(self, root: dict[str, Any]) -> Store | None:
        path = root.get("upper")
        if path is None or not root.get("overlay", True):
            return None
        if not isinstance(path, str) or not path.startswith("/"):
            raise SetupError("root.upper must be an absolute path")
        try:
            return Store(path, resume=bool(root.get("resume")))
        except OSError as error:
            self.notes.append(f"root: changes are kept in memory, {path} cannot be used: {error.strerror}")
            return None

    def _attach_store(self, home: Home) -> None:
        assert self.store is not None
        home.copy_mounts()
        try:
            self.store.attach()
        except OSError as error:
            self.notes.append(
                f"root: changes are kept in memory, the volume cannot be used: {error.strerror}"
            )
            self.store = None

    def description(self) -> dict[str, Any]:
        """Return the container's part of the sandbox's description."""
        return {"env": self.environment, "workdir": self.workdir, "guarded": self.guarded}

    def drop_store(self, home: Home) -> None:
        """Unmount the volume, which would otherwise be visible in the container's own root."""
        self.store = None
        syscalls.setns(home.mnt, syscalls.CLONE_NEWNS)
        syscalls.umount(PLACE)


def enter(home: Home, message: dict[str, Any]) -> Pod | None:
    """Enter the container that `setup` names; return None if it names none. Raises OSError and SetupError."""
    pid = message.get("target_pid")
    if message.get("target") is not None:
        pid = target.find(home, str(message["target"]))
    return None if pid is None else Pod(home=home, pid=int(pid), root=message.get("root") or {})
