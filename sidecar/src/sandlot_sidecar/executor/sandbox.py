"""The executor's sandbox: setup, claim, reset and teardown."""

from __future__ import annotations

import os
import time

from . import egress, file_worker, spawn, syscalls
from .ahead import Ahead
from .boot import Boot
from .children import reap_ended
from .claim_application import ClaimApplication, network_of
from .disk_usage import DiskUsage
from .errors import ExecutorError
from .exchange import Exchange
from .limits import validate
from .privileges import CAPABILITIES
from .reset import Reset
from .runners import Runners

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from .limits import Limits
    from .namespaces import Home
    from .plan import Plan
    from .pod import Pod
    from .replies import Answer

LOST_WITHIN, LOST_MOST = 10.0, 5


class Sandbox:
    """The one sandbox; each method leaves it usable or raises ExecutorError."""

    def __init__(self, *, home: Home, pod: Pod | None, plan: Plan, limits: Limits, hostname: str) -> None:
        self.runners = Runners(limits=limits, pod=pod, init=lambda: self._boot.init)
        self._boot = Boot(
            home=home, plan=plan, pod=pod, limits=limits, hostname=hostname, adopt=self.runners.adopt
        )
        self.ahead = Ahead(self._boot, self.runners)
        self.exchange = Exchange(self._boot, limits)
        self._disk = DiskUsage(self._boot)
        self._limits = limits
        self._pod = pod
        self._default_hostname = hostname  # unless a claim sets another
        self._application = ClaimApplication(
            boot=self._boot, runners=self.runners, limits=limits, ahead=self.ahead, exchange=self.exchange,
            hostname=hostname, kill_all=self._kill_all, restart=self._restart,
        )  # fmt: skip
        self._egress: egress.Egress | None = None
        self._lost: list[float] = []

    def start(self) -> None:
        """Build the sandbox. Raises OSError and ExecutorError; the caller then calls `end`."""
        self._boot.notes = (self._pod.notes if self._pod is not None else []) + self._limits.apply()
        self._boot.build_first()

    def description(self) -> dict[str, Any]:
        """Describe the sandbox's properties that depend on the kernel and the image."""
        boot, pod, cgroup = self._boot, self._pod, self._limits.cgroup
        shells = spawn.shells()
        return {
            "notes": boot.notes,
            "overlay": boot.plan.overlay,
            "cgroup": f"v{cgroup.group.version}" if cgroup else "none",
            "bash": shells["bash"].endswith("bash"),
            "shell": shells["sh"] or None,
            "init_pid": boot.init.pid,
            "disk_limit": self._disk.limited_by,
            **(pod.description() if pod is not None else {}),
        }

    # Used by the executor's loop.
    @property
    def init_fd(self) -> int:
        """Readable when the init has exited; -1 if there is none."""
        return self._boot.init.fd if self._boot.running else -1

    @property
    def target_fd(self) -> int:
        """Readable when the sandbox's container has exited; -1 if there is none."""
        return self._pod.fd if self._pod is not None else -1

    @property
    def alarm_fd(self) -> int:
        """Readable when the sandbox exceeds its memory limit; -1 if the kernel enforces the limit."""
        return self._limits.watch.alarm_fd if self._limits.watch is not None else -1

    def poll_timeout_ms(self) -> int | None:
        """Return the milliseconds until `run_due_work` or a step of `ahead` is due, or None."""
        if self.ahead.due:
            return 0
        found = self.runners.retired.poll_timeout_ms()
        at = min((at for at in (self._boot.sweep_at, self.ahead.drop_at) if at is not None), default=None)
        if at is None:
            return found
        left = max(0, int((at - time.monotonic()) * 1000) + 1)
        return left if found is None else min(found, left)

    def run_due_work(self) -> None:
        """Clean up what ops, earlier roots and a discarded generation have left, if that is due."""
        self.ahead.drop_discarded_if_due()
        self.runners.retired.run_due_work()
        self._boot.sweep_if_due()

    def descriptors(self) -> list[int]:
        """Return the descriptors to poll: these, and the children's pidfds."""
        return [
            *self.runners.children,
            *self.ahead.descriptors(),
            *(fd for fd in (self.init_fd, self.target_fd, self.alarm_fd) if fd >= 0),
        ]

    def target_lost(self) -> dict[str, Any]:
        """Return the event for the end of the container, and stop watching it."""
        assert self._pod is not None
        os.close(self._pod.fd)
        self._pod.fd = -1
        return {"event": "target_lost"}

    def init_lost(self) -> dict[str, Any]:
        """Restart the init after its exit, or give up if it keeps exiting; return the event."""
        now = time.monotonic()
        self._lost = [at for at in self._lost if now - at < LOST_WITHIN] + [now]
        if len(self._lost) > LOST_MOST:
            self._kill_all()
            return {"event": "init_given_up"}
        return {"event": "init_lost", "files_kept": self._restart()}

    # Requests of the server.

    def check_running(self) -> None:
        """Raise ExecutorError unless the sandbox runs."""
        if not self._boot.running:
            raise ExecutorError(
                "conflict", "the sandbox does not run: its init failed; end it and start another"
            )

    def _check_recorded(self) -> None:
        if self._boot.fresh is None:
            raise ExecutorError("conflict", "the image's fresh state is not recorded: send `record` first")

    def alive(self) -> bool:
        """Return whether the init is alive and not exiting: its exit kills all others before it can be waited for."""
        self.check_running()
        ending = self._boot.init.ending(self._boot.home)
        if ending:
            reap_ended()  # Linux: it cannot end before an op whose runner died first is waited for
        return not ending

    def counters(self) -> list[int]:
        """Return the files that count the container's OOM kills: the server reads them if this process dies."""
        cgroup = self._limits.cgroup
        return [] if cgroup is None else cgroup.counters()

    def runner(self) -> tuple[int, socket.socket]:
        """Start a runner; return its pid and its channel. Raises OSError."""
        self.check_running()
        return self.runners.start(home=self._boot.home, devpts=self._boot.root.devpts)

    def file_work(self, message: dict[str, Any]) -> Callable[[], Answer]:
        """Return the work of a file operation that acts as a user, for a job. Raises ExecutorError and OSError."""
        home, pod = self._boot.home, self._pod
        mask = home.permitted() & (CAPABILITIES if pod is None else pod.confinement.bounding)
        return file_worker.work_as(message, rootless=home.rootless, capabilities=mask)

    def enter_network(self) -> None:
        """Enter the sandbox's network namespace, in a job; raises OSError."""
        boot = self._boot
        if boot.init.net_id != os.stat(boot.home.net).st_ino:
            syscalls.setns(boot.init.namespaces["net"], syscalls.CLONE_NEWNET)

    def apply(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Put a claim in force, see `ClaimApplication`. Raises ExecutorError."""
        self.check_running()
        return self._application.apply(message, fds)

    def egress(self, message: dict[str, Any]) -> dict[str, Any]:
        """Set the egress programs, also for running processes; raises ExecutorError if they cannot be enforced."""
        self.check_running()
        cgroup = self._limits.cgroup
        directory = cgroup.group.directories.get("net") if cgroup is not None else None
        self._egress = egress.enforce(self._egress, message["programs"], directory=directory)
        return {}

    def reset(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Kill all, replace the writable layer, and return the proof; start a `runner` meanwhile if requested."""
        self.check_running()
        boot = self._boot
        if not boot.plan.overlay:
            raise ExecutorError("no_overlay", "cannot reset, the root is not an overlay: create another")
        self._check_recorded()
        boot.network, boot.hostname = network_of(message, boot), self._default_hostname
        return Reset(
            boot=boot, runners=self.runners, limits=self._limits, ahead=self.ahead, kill_all=self._kill_all
        ).run(message)

    def prepare(self, message: dict[str, Any]) -> bool:
        """Prepare the next generation for a reset with the same `network` and `limits`; return whether it is done."""
        self.check_running()
        boot = self._boot
        if not boot.plan.overlay or boot.home.rootless or boot.plan.image.shared is not None:
            return False
        self._check_recorded()
        limits = validate(message.get("limits"))
        return self.ahead.prepare(
            boot.conditions(network_of(message, boot), self._default_hostname, limits),
            limits=limits,
            probe=message["probe"],
            exit_code=int(message["exit_code"]),
            keep=bool(message.get("keep")),
        )

    def disk(self) -> DiskUsage:
        """Return the disk usage; raises ExecutorError unless the sandbox runs."""
        self.check_running()
        return self._disk

    def usage(self) -> dict[str, Any]:
        """Return what the sandbox uses now; None for what nothing counts."""
        return {**self.disk().seen(), **self._limits.usage()}

    def layers(self, *, merged: bool) -> list[int]:
        """Open the layers of its changes, the uppermost first, or `merged` the whole root; the caller closes them."""
        self.check_running()
        return self._boot.open_layers(merged=merged)

    def end(self) -> None:
        """Kill everything and remove what outlives this process."""
        self.ahead.drop()
        self._kill_all()
        self.runners.retired.remove_empty()
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        self._limits.close()

    def _restart(self) -> bool:
        """Kill all processes and restart the init; return whether the files were kept."""
        self._kill_all()
        return self._boot.restart()

    def _kill_all(self) -> None:
        self.runners.end_all()
        self._boot.stop()
        self.runners.forget_all()
