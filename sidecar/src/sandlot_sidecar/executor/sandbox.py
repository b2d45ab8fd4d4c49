"""The sandbox as the executor holds it: set up, claimed, reset, looked at, and taken down."""

from __future__ import annotations

import os
import socket
import time

from . import cleaning, spawn, syscalls
from .boot import Boot
from .disk_usage import DiskUsage
from .egress import Egress
from .errors import ExecutorError, SetupError
from .limits import checked
from .runners import Runners, group_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .limits import Limits
    from .namespaces import Home
    from .plan import Plan
    from .pod import Pod

NETWORKS = ("full", "none")
LOST_WITHIN = 10.0
LOST_MOST = 5


class Sandbox:
    """Everything there is of the one sandbox; each method leaves it usable or raises ExecutorError."""

    def __init__(self, *, home: Home, pod: Pod | None, plan: Plan, limits: Limits, hostname: str) -> None:
        self.runners = Runners(limits=limits, pod=pod, init=lambda: self._boot.init)
        self._boot = Boot(
            home=home, plan=plan, pod=pod, limits=limits, hostname=hostname, adopt=self.runners.adopt
        )
        self._disk = DiskUsage(self._boot)
        self._limits = limits
        self._pod = pod
        self._named = hostname  # before a claim said otherwise
        self._egress: Egress | None = None
        self._lost: list[float] = []

    def start(self) -> None:
        """Build it, once. Raises OSError and ExecutorError; it is to be ended then."""
        self._boot.notes = (self._pod.notes if self._pod is not None else []) + self._limits.apply()
        self._boot.build_first()

    def description(self) -> dict[str, Any]:
        """What it has become, where its kernel and its image decide."""
        boot, pod, cgroup = self._boot, self._pod, self._limits.cgroup
        shells = {}
        for name in ("sh", "bash"):
            try:
                shells[name] = spawn.find_shell(name)
            except ExecutorError:
                # An image without a shell still runs an argv.
                shells[name] = ""
        return {
            "notes": boot.notes,
            "overlay": boot.plan.overlay,
            "cgroup": f"v{cgroup.group.version}" if cgroup else "none",
            "bash": shells["bash"].endswith("bash"),
            "shell": shells["sh"] or None,
            "init_pid": boot.init.pid,
            "disk_limit": self._disk.limited_by,
            **(
                {"env": pod.environment, "workdir": pod.workdir, "guarded": pod.guarded}
                if pod is not None
                else {}
            ),
        }

    # What the executor's loop waits for.

    @property
    def init_fd(self) -> int:
        """Becomes readable when the init has ended; -1 while there is none."""
        return self._boot.init.fd if self._boot.running else -1

    @property
    def target_fd(self) -> int:
        """Becomes readable at the end of the container that the sandbox is made in; -1 where there is none."""
        return self._pod.fd if self._pod is not None else -1

    @property
    def doorbell(self) -> int:
        """Becomes readable when the sandbox holds more memory than it may; -1 where the kernel sees to that."""
        return self._limits.watch.doorbell if self._limits.watch is not None else -1

    def patience(self) -> int | None:
        """Milliseconds until `look` has something to do; None: nothing."""
        found, at = self.runners.retired.patience(), self._boot.sweep_at
        if at is None:
            return found
        left = max(0, int((at - time.monotonic()) * 1000) + 1)
        return left if found is None else min(found, left)

    def look(self) -> None:
        """At what ops and earlier roots have left behind."""
        self.runners.retired.look()
        self._boot.look()

    def descriptors(self) -> list[int]:
        """All of these that there are now, and those of its children."""
        return [
            *self.runners.children,
            *(fd for fd in (self.init_fd, self.target_fd, self.doorbell) if fd >= 0),
        ]

    def target_lost(self) -> dict[str, Any]:
        """The container has ended: say so, once."""
        assert self._pod is not None
        os.close(self._pod.fd)
        self._pod.fd = -1
        return {"event": "target_lost"}

    def init_lost(self) -> dict[str, Any]:
        """The init died, and all in the sandbox with it: make a new one, or say that it keeps dying and stay without."""
        now = time.monotonic()
        self._lost = [at for at in self._lost if now - at < LOST_WITHIN] + [now]
        if len(self._lost) > LOST_MOST:
            self._kill_all()
            return {"event": "init_given_up"}
        return {"event": "init_lost", "files_kept": self._renew()}

    # What the server asks for.

    def check_running(self) -> None:
        """Raises ExecutorError unless the sandbox runs."""
        if not self._boot.running:
            raise ExecutorError("conflict", "the sandbox is not set up")

    def alive(self) -> bool:
        """Whether the init lives; it takes all others along before its own end can be seen."""
        self.check_running()
        return not self._boot.init.ending(self._boot.home)

    def counters(self) -> list[int]:
        """Files by which the server sees whether the container ran out of memory: this process may die with it."""
        cgroup = self._limits.cgroup
        return [] if cgroup is None else cgroup.counters()

    def runner(self) -> tuple[int, socket.socket]:
        """Start a runner: its pid and its channel. Raises OSError."""
        self.check_running()
        return self.runners.start(home=self._boot.home, devpts=self._boot.root.devpts)

    def enter_network(self) -> None:
        """Move the calling process, a child, into the sandbox's network; raises OSError."""
        boot = self._boot
        if boot.init.net_id != os.stat(boot.home.net).st_ino:
            syscalls.setns(boot.init.namespaces["net"], syscalls.CLONE_NEWNET)

    def apply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Set limits, network and host name of a claim."""
        self.check_running()
        network = self._network(message)
        notes: list[str] = []
        if message.get("limits") is not None:
            notes = self._limits.replace(checked(message["limits"]))
            notes += self._limits.resize(self._boot.root)
            self.runners.limit()
        hostname = message.get("hostname")
        if network != self._boot.network:
            self._boot.hostname = str(hostname or self._boot.hostname)
            self._boot.network = network
            # Its processes begin anew, its files stay where they can.
            self._renew()
        elif hostname and hostname != self._boot.hostname:
            self._boot.hostname = str(hostname)
            socket.sethostname(self._boot.hostname)
        return {"notes": notes}

    def _network(self, message: dict[str, Any]) -> str:
        network = message.get("network") or self._boot.network
        if network not in NETWORKS:
            raise ExecutorError("bad_request", "network is full or none", field="network")
        return network

    def egress(self, message: dict[str, Any]) -> dict[str, Any]:
        """Set where its processes may send, those that run too; raises ExecutorError where that cannot be held."""
        self.check_running()
        cgroup = self._limits.cgroup
        directory = cgroup.group.directories.get("net") if cgroup is not None else None
        programs = {int(place): bytes.fromhex(code) for place, code in message["programs"].items()}
        if self._egress is None:
            if directory is None and not programs:
                return {}
            if directory is None:
                raise ExecutorError(
                    "unsupported",
                    "it takes a control group of version 2 that can be written",
                )
            self._egress = Egress(directory)
        try:
            self._egress.set(programs)
        except OSError as error:
            raise ExecutorError("unsupported", f"the kernel does not take it: {error}") from error
        return {}

    def reset(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Kill all, drop the writable layer, make a fresh one, and compare: beside the birth of a `runner` if one is asked for."""
        self.check_running()
        boot, cgroup = self._boot, self._limits.cgroup
        if not boot.plan.overlay:
            raise ExecutorError("no_overlay", "the root is not an overlay: it cannot be reset")
        assert boot.fresh is not None
        began = time.monotonic()
        boot.network, boot.hostname = self._network(message), self._named
        # An open /proc shows what is left of its namespace when its mount has gone.
        before = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        made = None
        try:
            self._clean(message.get("limits"))
            groups = cgroup.group.below() if cgroup is not None else []
            made = self.runners.first(boot.home, boot.root.devpts) if message.get("runner") else None
            proof, equal = boot.fresh.compare(
                home=boot.home,
                init=boot.init,
                before=before,
                root=boot.root,
                own_network=boot.network == "none",
                groups=[name for name in groups if name.startswith(group_name(""))],
            )
        except OSError as error:
            if made is not None:
                made[1].close()
            raise SetupError(f"the sandbox cannot be made again: {error}") from error
        finally:
            os.close(before)
        took = round((time.monotonic() - began) * 1000, 3)
        answer = {"proof": proof, "equal": equal, "took_ms": took, "notes": boot.notes}
        return (answer, []) if made is None else ({**answer, "runner": made[0]}, [made[1].detach()])

    def _clean(self, limits: dict[str, Any] | None) -> None:
        if cleaning.PROCESSES in cleaning.STEPS:
            self._kill_all()
        self.runners.retired.await_empty()
        if limits is not None:
            self._boot.notes = self._limits.replace(checked(limits))
        if cleaning.ROOT in cleaning.STEPS:
            self._boot.rebuild()
        else:
            self._boot.replace_init()

    def usage(self) -> dict[str, Any]:
        """What the sandbox uses now; None where it is not counted."""
        self.check_running()
        group = self._limits.cgroup.group if self._limits.cgroup is not None else None
        used, size = self._boot.root.space()
        pids = group.number("pids") if group else None
        return {
            "memory": group.number("memory") if group else None,
            "memory_peak": group.number("memory_peak") if group else None,
            "cpu": group.cpu_seconds() if group else None,
            "pids": max(0, pids - len(self.runners.children)) if pids is not None else None,
            "disk_used": used,
            "disk_size": size,
        }

    def disk(self) -> DiskUsage:
        """What it holds of its disk can be asked there."""
        self.check_running()
        return self._disk

    def layer(self, *, merged: bool) -> int:
        """A descriptor of what the sandbox has written, or `merged` with its image: the caller's to close."""
        self.check_running()
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if merged:
            return os.open("/", flags)
        if not self._boot.plan.overlay:
            raise ExecutorError(
                "no_overlay", "the root is not an overlay: what was written cannot be told from the image"
            )
        if self._boot.home.rootless:
            raise ExecutorError("no_overlay", "without root there is no one layer of what was written")
        return os.open(".", flags, dir_fd=self._boot.root.upper)

    def end(self) -> None:
        """Kill everything and give back what does not go with the process."""
        self._kill_all()
        self.runners.retired.remove_empty()
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        self._limits.close()

    def _renew(self) -> bool:
        """Replace the init and everything that ran; whether the files are still there."""
        self._kill_all()
        return self._boot.renew()

    def _kill_all(self) -> None:
        self.runners.end_all()
        self._boot.stop()
        self.runners.forget_all()
