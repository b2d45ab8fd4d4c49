"""Runs the server's ops one after another, in its own cgroup, outside the sandbox's PID namespace."""

from __future__ import annotations

import os
import select
import signal
import time

from . import wire
from .counters import Counters, refusals
from .descendants import Descendants, signal_each
from .group_kill import SIGNALS
from .limit_checks import LimitChecks
from .oom_events import OOM_PAUSE_MS, OomEvents
from .oom_score import OomScore
from .op import Op
from .op_limits import OpLimits, limit_cpu_seconds
from .spawn import Spawner, StartFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from .counters import Baseline
    from .group import Group
    from .memory_watch import MemoryWatch


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
        """`watch`: set only if the kernel does not enforce memory limits. `number`: of this runner's group."""
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
        self._last_counters: Counters | None = None  # None: may have changed since the last op
        self._limits = OpLimits(group, watch)
        self._checks = None if watch is None else LimitChecks(group, watch)
        self._oom = OomEvents(group if watch is None else None, self.poll)
        self.score = OomScore(proc)

    def serve(self) -> None:
        """Serve until the server closes the channel."""
        channel = self.channel.fileno()
        while True:
            # Without an op only the channel matters, and the read blocks on it: this saves each op a poll.
            op = self.op
            ready = [(channel, select.POLLIN)] if op is None else self.poll.poll(self._poll_timeout_ms(op))
            if self._oom.checks:
                self._check_oom()
            # Skip the check if the op has ended: the caller waits for the report of its end.
            if self._checks is not None and self.op is not None and not self._has_ended(ready):
                exceeded = self._checks.exceeded(self.op)
                if exceeded is not None:
                    self._kill_over_limit(self.op, exceeded)
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
            if (
                self.op is not None
                and self.op.report_start_at is not None
                and time.monotonic() >= self.op.report_start_at
            ):
                self._report_start(self.op, None)

    def _has_ended(self, ready: list[tuple[int, int]]) -> bool:
        return self.op is not None and any(fd == self.op.pidfd for fd, _ in ready)

    def _poll_timeout_ms(self, op: Op) -> float | None:
        """Return the milliseconds until the next timed work, or None."""
        if self._oom.checks:
            return OOM_PAUSE_MS
        dues = [] if op.report_start_at is None else [op.report_start_at]
        if self._checks is not None and not op.over_limit:
            dues.append(self._checks.due)
        return max(0.0, (min(dues) - time.monotonic()) * 1000) if dues else None

    def _message(self, message: dict[str, Any], fds: list[int]) -> None:
        try:
            if "run" in message:
                self._run(message["run"], fds)
            elif "signal" in message:
                self._send({"signalled": self._signal(int(message["signal"]), bool(message.get("tree")))})
            elif "kill" in message:
                self._send({"killed": self._kill()})
            elif "laid" in message:
                self.spawner.root_exchanged()
            elif "check" in message:
                self._send({"leftover": self._leftover()})
        finally:
            wire.close_all(fds)

    def _send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            wire.send_packet(self.channel, message, fds or [])
        except OSError:
            # The server is gone; the next read returns end of file.
            return

    def _run(self, run: dict[str, Any], fds: list[int]) -> None:
        if self.op is not None:
            self._send(
                {
                    "failed": "busy",
                    "message": "this runner already runs an op; wait for its end",
                    "exit_code": None,
                }
            )
            return
        self._limits.set(run.get("limits") or {})
        before, self._last_counters = self._last_counters or Counters(self.group, self._limiting), None
        before.refused = refusals(self.group, self._limiting)  # other ops may have raised it
        peak = self.group.reset_peak() if self.group else None
        memory = peak if self.group is None or self.group.version == 1 else self.group.number("memory")
        self._baseline.set(oom=before.oom, refused=before.refused, memory=memory or 0)
        self._baseline.killed = False
        # The OOM killer must pick the op's processes before this one.
        self.score.set_for_op()
        asked_at = time.monotonic() if run.get("timed") else None
        # A signal to a command that cannot start must not hit what has the pid or the mark of the one before.
        self.last = None
        try:
            pid, master = self.spawner.start(run, fds)
        except StartFailed as failed:
            if self.group and self.group.pids_hits() > before.pids:
                failed.answer["pids_hit"] = True
            self._send(failed.answer)
            return
        finally:
            self.score.set_for_runner()
        # Without a group, descendants are found by the op's pid in the sandbox.
        inner = None if self.group else self._inner_pid(pid)
        self.op = self.last = Op(pid=pid, inner_pid=inner, mark=str(run.get("mark", "")), before=before)
        self.op.memory, self.op.peak = memory, peak
        if asked_at is not None:
            self.op.timed = asked_at, time.monotonic()
        if self._checks is not None:
            self._checks.begin()
        seconds = (run.get("limits") or {}).get("cpu_seconds")
        if seconds:
            limit_cpu_seconds(pid, seconds)
        self.poll.register(self.op.pidfd, select.POLLIN)
        quiet = run.get("quiet")
        if quiet:
            self.op.report_start_at = time.monotonic() + quiet
        else:
            self._report_start(self.op, master)

    def _report_start(self, op: Op, master: int | None) -> None:
        op.report_start_at = None
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
        self._baseline.killed = True
        return self._descendants.kill(self.last)

    def _leftover(self) -> int:
        return self._descendants.leftover(self.last, running=self.op is not None)

    def _oom_event(self) -> None:
        self._oom.on_event()
        if self.op is None:
            self._oom.checks = 0
        self._check_oom()

    def _kill_over_limit(self, op: Op, cause: str) -> None:
        """Kill an op over its limit; first its process group in few calls, since a fork bomb delays each call."""
        self._signal_process_group(op, times=1)  # before the report: the op may fill memory meanwhile
        # Before the other signals, which can take seconds: the op's timeout, or the init's end, would become the verdict.
        self._send({"kills": cause})
        self._signal_process_group(op, times=SIGNALS - 1)
        self._kill()

    @staticmethod
    def _signal_process_group(op: Op, *, times: int) -> None:
        try:
            for _ in range(times):
                os.killpg(op.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # the op has changed its process group

    def _check_oom(self) -> None:
        self._oom.count_down()
        if self.op is None or self.op.oom or self.op.node_oom or not self.group:
            return
        if self.group.oom_kills() > self.op.before.oom:
            self._oom.checks = 0
            self.op.classify_oom(Counters(self.group, self._limiting))
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
        op.classify_oom(now)
        pids_hit = op.hit_pids_limit(group, now, failed=code != 0)
        if watch is not None and group is not None:
            op.oom = watch.take_mark(self._number) or op.oom
            if op.oom:
                watch.settle(group)
        over_limit = op.oom or op.node_oom or pids_hit
        if over_limit:
            self._kill()
        leftover = 0 if alone else self._leftover()
        self._last_counters = None if leftover or over_limit else now
        self._baseline.set(oom=now.oom, refused=now.refused)
        timings = {}
        if op.timed is not None:
            asked_at, spawned_at = op.timed
            timings = {"spawned": spawned_at - asked_at, "ran": time.monotonic() - spawned_at}
        self._send(
            {
                **timings,
                "ended": {
                    "exit_code": code if code >= 0 else 128 - code,
                    "signal": -code if code < 0 else None,
                    "cpu": op.cpu(now, waited_for=usage.ru_utime + usage.ru_stime),
                    "peak_memory": op.peak_memory(group, usage.ru_maxrss * 1024),
                    "oom": op.oom,
                    "node_oom": op.node_oom,
                    "pids_hit": pids_hit,
                    "leftover": leftover,
                    **({"init_killed": True} if self._descendants.init_killed else {}),
                },
            }
        )
        os.close(op.pidfd)  # closed last, since the caller waits for the report above
