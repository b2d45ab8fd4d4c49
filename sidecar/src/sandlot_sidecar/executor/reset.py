"""Resets the sandbox: kills all, begins the next generation, and proves that it equals a fresh one."""

from __future__ import annotations

import os
import time

from . import reset_steps
from .errors import SetupError
from .limits import validate
from .proof import processes_in
from .retired_groups import EMPTY_SECONDS
from .runners import group_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .ahead import Ahead, Prepared
    from .boot import Boot
    from .init import Init
    from .limits import Limits
    from .root import Root
    from .runners import Runners


class Reset:
    """One reset of a sandbox whose root is an overlay."""

    def __init__(
        self, *, boot: Boot, runners: Runners, limits: Limits, ahead: Ahead, kill_all: Callable[[], None]
    ) -> None:
        self._boot = boot
        self._runners = runners
        self._limits = limits
        self._ahead = ahead
        self._kill_all = kill_all
        self._made: tuple[int, int] | None = None  # the next owner's first runner: its pid, its channel

    def run(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Return the answer with the proof, and the channel of the next owner's runner if it has one.

        The boot's network and host name are the next owner's already. Raises SetupError.
        """
        boot = self._boot
        began = time.monotonic()
        limits = None if message.get("limits") is None else validate(message["limits"])
        prepared = None
        if message.get("prepared") and limits is not None and reset_steps.ROOT in reset_steps.STEPS:
            prepared = self._ahead.take(boot.conditions(boot.network, boot.hostname, limits))
        else:
            self._ahead.drop()
        # An open /proc still lists the old namespace's processes after its mount is gone.
        before = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if prepared is None:
                proof, equal = self._build(before, limits, runner=bool(message.get("runner")))
            else:
                proof, equal = self._enter(before, limits, prepared)
        except OSError as error:
            if self._made is not None:
                os.close(self._made[1])
            raise SetupError(f"cannot rebuild the sandbox: {error}") from error
        finally:
            os.close(before)
        boot.checked = prepared is not None and equal  # after its first command
        took = round((time.monotonic() - began) * 1000, 3)
        answer = {
            "proof": proof,
            "equal": equal,
            "took_ms": took,
            "notes": boot.notes,
            "prepared": prepared is not None,
        }
        return (answer, []) if self._made is None else ({**answer, "runner": self._made[0]}, [self._made[1]])

    def _build(
        self, before: int, limits: dict[str, Any] | None, *, runner: bool
    ) -> tuple[dict[str, Any], bool]:
        """Build the next generation after the end of this one."""
        boot, runners = self._boot, self._runners
        if reset_steps.PROCESSES in reset_steps.STEPS:
            self._kill_all()
        self._settle(before, limits)
        if reset_steps.ROOT in reset_steps.STEPS:
            boot.rebuild()
        else:
            boot.replace_init()
        if runners.retired.await_freed() and limits is not None:
            self._limits.apply()  # the kernel refuses a limit below what is taken
        groups = self._groups()
        started = runners.try_start(boot.home, boot.root.devpts) if runner else None
        if started is not None:
            self._made = started[0], started[1].detach()
        return self._compare(before, lambda: groups, boot.init, boot.root)

    def _enter(
        self, before: int, limits: dict[str, Any] | None, prepared: Prepared
    ) -> tuple[dict[str, Any], bool]:
        """Enter the prepared generation and read its state, while the processes of this one end."""
        boot, runners, next_one = self._boot, self._runners, prepared.generation
        kills = reset_steps.PROCESSES in reset_steps.STEPS
        if kills:
            runners.kill_all()
            boot.init.kill()
        boot.move(prepared.place)
        kept = prepared.give_runner(boot.home.proc)

        def settled() -> list[str]:
            if kills:
                self._kill_all()
            runners.retired.await_freed()
            self._settle(before, limits)
            own = kept[0].group if kept is not None else None
            groups = self._groups(without=own.name if own else None)
            boot.init = next_one.init
            boot.adopt(next_one)
            if kept is not None:
                runners.adopt(kept[0])
                self._made = kept[0].pid, kept[1].detach()
                if own:
                    self._limits.limit_runner(own)
            return groups

        return self._compare(before, settled, next_one.init, next_one.root)

    def _settle(self, before: int, limits: dict[str, Any] | None) -> None:
        # For both waits: the gateway gives the whole reset 10 s.
        deadline = time.monotonic() + EMPTY_SECONDS
        self._runners.retired.await_empty()
        if reset_steps.PROCESSES in reset_steps.STEPS:
            _await_reaped(before, deadline=deadline)
        if limits is not None:
            self._boot.notes = self._limits.replace(limits)

    def _groups(self, *, without: str | None = None) -> list[str]:
        """Return the control groups of commands, except that of the next owner's runner."""
        cgroup = self._limits.cgroup
        names = cgroup.group.below() if cgroup is not None else []
        return [name for name in names if name.startswith(group_name("")) and name != without]

    def _compare(
        self, before: int, settled: Callable[[], list[str]], init: Init, root: Root
    ) -> tuple[dict[str, Any], bool]:
        boot = self._boot
        assert boot.fresh is not None
        return boot.fresh.compare(
            home=boot.home,
            init=init,
            before=before,
            root=root,
            own_network=boot.network == "none",
            settled=settled,
        )


def _await_reaped(before: int, *, deadline: float) -> None:
    """Wait until a killed generation has no process left, given its /proc; the proof reports one that stays.

    Linux reaps them all before the init exits. gVisor does not: a running op, whose runner has ended, is a zombie
    without a control group until the pod's PID 1 reaps it.
    """
    pause = 0.001
    while processes_in(before) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
