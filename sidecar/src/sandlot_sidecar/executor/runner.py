"""Runs one op after the other on behalf of the server, from a cgroup of its own, outside the sandbox's PIDs."""

from __future__ import annotations

import os
import select
import signal
import time

from . import wire
from .counters import Counters, refusals
from .descendants import Descendants, signal_each
from .oom_events import OOM_PAUSE_MS, OomEvents
from .oom_score import OomScore
from .op import FULL_LOOKS, Op
from .op_limits import OpLimits, limit_cpu_seconds
from .spawn import Failed, Spawner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from .counters import Baseline
    from .group import Group
    from .memory_watch import MemoryWatch

# Where the kernel does not tell of refused forks, or refuse all that are too many (gVisor), it is looked at so often.
FULL_PAUSE = 0.05


class Runner:
    """The runner's loop."""

    def __init__(
        self,
        *,
        channel: socket.socket,
        group: Group | None,
        limiting: list[Group],
        init: int,
        proc: int,
        devpts: int,
        rootless: bool,
        watch: MemoryWatch | None,
        number: int,
        baseline: Baseline,
    ) -> None:
        """`watch`: where the kernel holds nobody to a limit of memory. `number`: of this runner's group."""
        self.channel = channel
        self.group = group
        self._limiting = limiting
        self._descendants = Descendants(group, init=init)
        self.proc = proc
        self.spawner = Spawner(devpts=devpts, rootless=rootless, mark=not group)
        self.op: Op | None = None
        self.last: Op | None = None
        self.poll = select.poll()
        self.poll.register(channel, select.POLLIN)
        self._watch = watch
        self._number = number
        self._baseline = baseline
        self._look_at = self._count_at = 0.0  # when memory and processes are looked at next
        self._quiet: Counters | None = None  # as the last op left them, where nobody else can change them
        self._limits = OpLimits(group)
        self._oom = OomEvents(group if watch is None else None, self.poll)
        self.score = OomScore(proc)

    def serve(self) -> None:
        """Serve until the channel ends."""
        channel = self.channel.fileno()
        while True:
            # Without an op only the channel is of interest, and the read waits for it: one call less of each op.
            op = self.op
            ready = [(channel, select.POLLIN)] if op is None else self.poll.poll(self._patience(op))
            if self._oom.checks:
                self._check_oom()
            # What has ended is not looked at, while the caller waits for the end.
            if self._watch is not None and self.op is not None and not self._has_ended(ready):
                self._look(self.op, self._watch)
            for fd, _ in ready:
                if fd == self._oom.fd:
                    self._oom_event()
                elif fd == channel:
                    try:
                        received = wire.receive_packet(self.channel)
                    except ConnectionResetError:
                        received = None
                    if received is None:
                        return
                    self._message(*received)
                elif self.op is not None and fd == self.op.pidfd:
                    self._ended(self.op)
            if self.op is not None and self.op.tell_at is not None and time.monotonic() >= self.op.tell_at:
                self._tell_start(self.op, None)

    def _has_ended(self, ready: list[tuple[int, int]]) -> bool:
        return self.op is not None and any(fd == self.op.pidfd for fd, _ in ready)

    def _patience(self, op: Op) -> float | None:
        """Milliseconds until there is something to do without an event."""
        if self._oom.checks:
            return OOM_PAUSE_MS
        dues = [] if op.tell_at is None else [op.tell_at]
        if self._watch is not None and not op.struck:
            dues.append(min(self._look_at, self._count_at))
        return max(0.0, (min(dues) - time.monotonic()) * 1000) if dues else None

    def _message(self, message: dict[str, Any], fds: list[int]) -> None:
        try:
            if "run" in message:
                self._run(message["run"], fds)
            elif "signal" in message:
                self._send({"signalled": self._signal(int(message["signal"]), bool(message.get("tree")))})
            elif "kill" in message:
                self._send({"killed": self._kill()})
            elif "check" in message:
                self._send({"leftover": self._leftover()})
        finally:
            wire.close_all(fds)

    def _send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            wire.send_packet(self.channel, message, fds or [])
        except OSError:
            # The server is gone: the end of the channel is read next.
            return

    def _run(self, run: dict[str, Any], fds: list[int]) -> None:
        if self.op is not None:
            self._send({"failed": "busy", "message": "an op runs already", "exit_code": None})
            return
        self._limits.set(run.get("limits") or {})
        before, self._quiet = self._quiet or Counters(self.group, self._limiting), None
        before.refused = refusals(self.group, self._limiting)  # other ops can have reached one meanwhile
        peak = self.group.reset_peak() if self.group else None
        memory = peak if self.group is None or self.group.version == 1 else self.group.number("memory")
        self._baseline.set(oom=before.oom, refused=before.refused, memory=memory or 0)
        # Everything the op starts is to be killed for memory before this process is.
        self.score.be_op()
        try:
            pid, master = self.spawner.start(run, fds)
        except Failed as failed:
            if self.group and self.group.pids_hits() > before.pids:
                failed.answer["pids_hit"] = True
            self._send(failed.answer)
            return
        finally:
            self.score.be_runner()
        # Without a group, descendants are found by the pid that they see.
        inner = None if self.group else self._inner_pid(pid)
        self.op = self.last = Op(pid=pid, inner_pid=inner, mark=str(run.get("mark", "")), before=before)
        self.op.memory, self.op.peak = memory, peak
        if self._watch is not None:
            self._look_at = self._watch.first()
            self._count_at = self._look_at
        seconds = (run.get("limits") or {}).get("cpu_seconds")
        if seconds:
            limit_cpu_seconds(pid, seconds)
        self.poll.register(self.op.pidfd, select.POLLIN)
        quiet = run.get("quiet")
        if quiet:
            self.op.tell_at = time.monotonic() + quiet
        else:
            self._tell_start(self.op, master)

    def _tell_start(self, op: Op, master: int | None) -> None:
        op.tell_at = None
        if op.inner_pid is None:
            op.inner_pid = self._inner_pid(op.pid)
        self._send({"started": op.inner_pid}, [master] if master is not None else None)
        if master is not None:
            os.close(master)

    def _inner_pid(self, pid: int) -> int:
        try:
            fd = os.open(f"{pid}/status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
        except OSError:
            return pid
        try:
            text = os.read(fd, 4096)
        finally:
            os.close(fd)
        start = text.find(b"\nNSpid:")
        return int(text[start + 7 : text.index(b"\n", start + 1)].split()[-1]) if start >= 0 else pid

    def _signal(self, number: int, tree: bool) -> int:
        if tree:
            return self._descendants.signal(number, self.last)
        return signal_each([self.op.pid], number) if self.op is not None else 0

    def _kill(self) -> int:
        return self._descendants.kill(self.last)

    def _leftover(self) -> int:
        return self._descendants.leftover(self.last, running=self.op is not None)

    def _oom_event(self) -> None:
        self._oom.happened()
        if self.op is None:
            self._oom.checks = 0
        self._check_oom()

    def _look(self, op: Op, watch: MemoryWatch) -> None:
        if op.struck or not self.group:
            return
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at, op.oom = watch.look(self.group)
            if op.oom:
                self._strike(op, "oom")
                return
        if now >= self._count_at:
            self._count_at = now + FULL_PAUSE
            op.full += self.group.full()
            if op.full >= FULL_LOOKS:
                self._strike(op, "pids_limit")

    def _strike(self, op: Op, cause: str) -> None:
        """End what takes too much. One system call for most of it: each of ours waits behind hundreds of a bomb's."""
        try:
            os.killpg(op.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # it is in a group of another name
        # The server first: of a bomb the kill may take the init along, and that would be the verdict.
        self._send({"kills": cause})
        self._kill()

    def _check_oom(self) -> None:
        self._oom.count_down()
        if self.op is None or self.op.oom or self.op.node_oom or not self.group:
            return
        if self.group.oom_kills() > self.op.before.oom:
            self._oom.checks = 0
            self.op.judge_oom(Counters(self.group, self._limiting))
            self._kill()

    def _ended(self, op: Op) -> None:
        pid, status, usage = os.wait4(op.pid, os.WNOHANG)
        if pid == 0:
            return
        self.poll.unregister(op.pidfd)
        self.op = None
        self._oom.checks = 0
        code = os.waitstatus_to_exitcode(status)
        watch, group = self._watch, self.group
        alone = watch is not None and group is not None and group.number("pids") == 1
        now = Counters(self.group, self._limiting, alone=alone)
        op.judge_oom(now)
        pids_hit = op.overran(group, now, failed=code != 0)
        if watch is not None and group is not None:
            op.oom = watch.take_mark(self._number) or op.oom
            if op.oom:
                watch.settle(group)
        struck = op.oom or op.node_oom or pids_hit
        if struck:
            self._kill()
        leftover = 0 if alone else self._leftover()
        self._quiet = None if leftover or struck else now
        self._baseline.set(oom=now.oom, refused=now.refused)
        self._send(
            {
                "ended": {
                    "exit_code": code if code >= 0 else 128 - code,
                    "signal": -code if code < 0 else None,
                    "cpu": op.cpu(now, waited_for=usage.ru_utime + usage.ru_stime),
                    "peak_memory": op.peak_memory(group, usage.ru_maxrss * 1024),
                    "oom": op.oom,
                    "node_oom": op.node_oom,
                    "pids_hit": pids_hit,
                    "leftover": leftover,
                }
            }
        )
        os.close(op.pidfd)  # the caller waits for what is above
