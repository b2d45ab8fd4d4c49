"""Runs one op after the other on behalf of the server, from a cgroup of its own, outside the sandbox's PIDs."""

from __future__ import annotations

import mmap
import os
import resource
import select
import signal
import time

from . import syscalls, wire
from .spawn import Failed, Spawner
from .sweep import Sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from .group import Group
    from .memory_watch import MemoryWatch

# What Docker leaves to root in a container: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
# net_bind_service, sys_chroot, mknod, audit_write, setfcap. Not net_raw: the network is the machine's own, whose
# traffic a packet socket would read, the gateway's keys in it, and past whose policies it would write.
CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 27, 29, 31))
# A runner's own: with it a raised oom_score_adj is also the lowest that the op may set. Without, an op takes its score
# back, and the kernel kills the runner in its place. No op has it, since it is not in the bounding set.
SYS_RESOURCE = 1 << 24
# The kernel notifies before it kills: look again for a while.
OOM_CHECKS = 40
OOM_PAUSE_MS = 5
# Where the kernel does not tell of refused forks, or refuse all that are too many (gVisor), it is looked at so often:
# an op that so many looks find full is a bomb.
FULL_PAUSE = 0.05
FULL_LOOKS = 5
# A container's ops keep its score; it has to be so much above their runner's.
OOM_DISTANCE = 100


class Op:
    """The command that runs now, and the counters from before it."""

    def __init__(self, *, pid: int, inner_pid: int | None, mark: str, before: Counters) -> None:
        self.pid = pid
        self.inner_pid = inner_pid  # as the sandbox sees it, once it was asked for
        self.pidfd = os.pidfd_open(pid)
        self.before = before
        self.memory: int | None = None  # the group's, and its peak, when the op began
        self.peak: int | None = None
        self.sweep = Sweep(mark=mark, leader=inner_pid or 0)
        self.oom = False
        self.node_oom = (
            False  # the kernel killed one of it for memory, but no limit of the sandbox's was reached
        )
        self.full = 0  # looks that found it at its limit of processes
        self.tell_at: float | None = None  # when the server hears of its start, unless it has ended by then


class Counters:
    """What the cgroup had counted at a moment; processor time without this process's own."""

    __slots__ = ("cpu", "oom", "pids", "refused")

    def __init__(self, group: Group | None, limiting: list[Group], *, alone: bool = False) -> None:
        """`alone`: this process is the only member, and nobody counts forks that were refused."""
        self.cpu = others_cpu(group)
        self.oom = group.oom_kills() if group else 0
        self.refused = refusals(group, limiting)
        self.pids = group.pids_hits() if group and not alone else 0


class Baseline:
    """A runner's counters when its op began, in memory that it shares with the executor.

    Of a runner that is killed in the middle of an op, the executor compares them with what the kernel has counted since.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._numbers = memoryview(self._page).cast("q")

    def set(self, *, oom: int, refused: int, memory: int = 0) -> None:
        """`memory`: bytes that the group held."""
        numbers = self._numbers
        numbers[0], numbers[1], numbers[2] = oom, refused, memory

    def memory_facts(self, group: Group, limiting: list[Group]) -> dict[str, Any]:
        """The facts of an `ended` message where the kernel has killed a member for memory since; else none."""
        oom, refused, memory = self._numbers[:3]
        if group.oom_kills() <= oom:
            return {}
        own = refusals(group, limiting) > refused
        peak = max(0, (group.number("memory_peak") or 0) - memory)
        return {"signal": int(signal.SIGKILL), "oom": own, "node_oom": not own, "peak_memory": peak}

    def close(self) -> None:
        self._numbers.release()
        self._page.close()


def refusals(group: Group | None, limiting: list[Group]) -> int:
    """How often a limit of memory was reached that is the sandbox's, or the op's, own."""
    return sum(each.memory_refused() for each in (group, *limiting)) if group else 0


def others_cpu(group: Group | None) -> float | None:
    """Seconds of processor time that the group used besides this process."""
    used = group.cpu_seconds() if group else None
    return None if used is None else used - time.process_time()


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
        self._init = init
        self.proc = proc
        self.spawner = Spawner(devpts=devpts, rootless=rootless, mark=not group)
        self.op: Op | None = None
        self.last: Op | None = None
        self.poll = select.poll()
        self.poll.register(channel, select.POLLIN)
        self._oom_checks = 0
        self._watch = watch
        self._number = number
        self._baseline = baseline
        self._look_at = self._count_at = 0.0  # when memory and processes are looked at next
        self._quiet: Counters | None = None  # as the last op left them, where nobody else can change them
        self._defaults: dict[str, str] = {}
        self._oom_fd = self._watch_memory()
        self._score = os.open("self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC, dir_fd=proc)
        self._own_score = os.pread(self._score, 16, 0).strip()
        self._op_score = b"1000"

    def take_score(self, score: int | None) -> None:
        """Let ops have this score, where this process may have one that is low enough beside it."""
        if score is None:
            return
        # Where nobody is killed by score (gVisor), one for both spares each op two writes.
        own = str(score if self._watch is not None else max(-1000, score - OOM_DISTANCE)).encode()
        if int(self._own_score) > int(own):
            try:
                os.pwrite(self._score, own, 0)
            except OSError:
                return
            self._own_score = own
        self._op_score = str(score).encode()

    def _watch_memory(self) -> int:
        if not self.group or "memory" not in self.group.directories or self._watch is not None:
            return -1
        directory = self.group.directories["memory"]
        if self.group.version == 2:
            fd = os.open("memory.events", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
            os.pread(fd, 4096, 0)
            self.poll.register(fd, select.POLLPRI)
            return fd
        control = os.open("memory.oom_control", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            events = os.open("cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
            try:
                os.write(events, f"{fd} {control}".encode())
            finally:
                os.close(events)
        except OSError:
            os.close(fd)
            return -1
        finally:
            os.close(control)
        self.poll.register(fd, select.POLLIN)
        return fd

    def serve(self) -> None:
        """Serve until the channel ends."""
        channel = self.channel.fileno()
        while True:
            # Without an op only the channel is of interest, and the read waits for it: one call less of each op.
            op = self.op
            ready = [(channel, select.POLLIN)] if op is None else self.poll.poll(self._patience(op))
            if self._oom_checks:
                self._check_oom()
            # What has ended is not looked at, while the caller waits for the end.
            if self._watch is not None and self.op is not None and not self._has_ended(ready):
                self._look(self.op, self._watch)
            for fd, _ in ready:
                if fd == self._oom_fd:
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
        if self._oom_checks:
            return OOM_PAUSE_MS
        dues = [] if op.tell_at is None else [op.tell_at]
        if self._watch is not None and not self._is_over(op):
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
        self._limit(run.get("limits") or {})
        before, self._quiet = self._quiet or Counters(self.group, self._limiting), None
        before.refused = refusals(self.group, self._limiting)  # other ops can have reached one meanwhile
        peak = self.group.reset_peak() if self.group else None
        memory = peak if self.group is None or self.group.version == 1 else self.group.number("memory")
        self._baseline.set(oom=before.oom, refused=before.refused, memory=memory or 0)
        # Everything the op starts is to be killed for memory before this process is.
        if self._op_score != self._own_score:
            self._set_score(self._op_score)
        try:
            pid, master = self.spawner.start(run, fds)
        except Failed as failed:
            if self.group and self.group.pids_hits() > before.pids:
                failed.answer["pids_hit"] = True
            self._send(failed.answer)
            return
        finally:
            if self._op_score != self._own_score:
                self._set_score(self._own_score)
        # Without a group, descendants are found by the pid that they see.
        inner = None if self.group else self._inner_pid(pid)
        self.op = self.last = Op(pid=pid, inner_pid=inner, mark=str(run.get("mark", "")), before=before)
        self.op.memory, self.op.peak = memory, peak
        if self._watch is not None:
            self._look_at = self._watch.first()
            self._count_at = self._look_at
        seconds = (run.get("limits") or {}).get("cpu_seconds")
        if seconds:
            self._limit_cpu_seconds(pid, seconds)
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

    def _set_score(self, score: bytes) -> None:
        try:
            os.pwrite(self._score, score, 0)
        except OSError:
            return

    def _limit_cpu_seconds(self, pid: int, seconds: float) -> None:
        whole = max(1, int(seconds + 0.999))
        try:
            resource.prlimit(pid, resource.RLIMIT_CPU, (whole, whole + 1))
        except (OSError, ValueError):
            return

    def _limit(self, limits: dict[str, Any]) -> None:
        if not self.group:
            return
        for what, text in self._defaults.items():
            self.group.write(what, text)
        self._defaults.clear()
        memory, pids = limits.get("memory"), limits.get("pids")
        for what, value in (("memory_limit", memory), ("pids_limit", pids)):
            if value is None:
                continue
            now = self.group.read(what)
            if now is None:
                continue
            self._defaults[what] = now.strip()
            own = (self.group.number("memory") or 0) if what == "memory_limit" else 1
            limit = int(value) + own
            text = now.strip()
            if not text.isdigit() or int(text) > limit:
                self.group.limit(what, limit)

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
        if self.last is None:
            return 0
        if tree and not self.group:
            return self.last.sweep.signal(number)
        own = os.getpid()
        if tree and self.group:
            pids = [pid for pid in self.group.members() if pid != own]
        else:
            pids = [self.op.pid] if self.op is not None else []
        count = 0
        for pid in pids:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                continue
            count += 1
        return count

    def _kill(self) -> int:
        if self.group:
            return self.group.kill(spare=os.getpid(), lost=self._end_init)
        return self.last.sweep.kill() if self.last is not None else 0

    def _end_init(self) -> None:
        """Nobody is born in a namespace of processes whose first one has died."""
        try:
            os.kill(self._init, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _leftover(self) -> int:
        if self.group:
            if self.group.number("pids") == 1:
                return 0
            own = os.getpid()
            main = self.op.pid if self.op is not None else own
            return sum(pid not in (own, main) for pid in self.group.members())
        if self.last is None:
            return 0
        members = self.last.sweep.members()
        return len(members) - (1 if self.op is not None and members else 0)

    def _oom_event(self) -> None:
        if self.group and self.group.version == 1:
            try:
                os.eventfd_read(self._oom_fd)
            except BlockingIOError:
                pass
        self._oom_checks = OOM_CHECKS if self.op is not None else 0
        self._check_oom()

    def _is_over(self, op: Op) -> bool:
        """Whether a look has ended it."""
        return op.oom or op.full >= FULL_LOOKS

    def _look(self, op: Op, watch: MemoryWatch) -> None:
        if self._is_over(op) or not self.group:
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
        self._oom_checks = max(0, self._oom_checks - 1)
        if self.op is None or self.op.oom or self.op.node_oom or not self.group:
            return
        if self.group.oom_kills() > self.op.before.oom:
            self._oom_checks = 0
            self._judge_oom(self.op, Counters(self.group, self._limiting))
            self._kill()

    def _judge_oom(self, op: Op, now: Counters) -> None:
        """Whose memory was used up: the kernel kills also where that of the node, or of more than this sandbox, is."""
        if now.oom > op.before.oom and not op.oom and not op.node_oom:
            op.oom = now.refused > op.before.refused
            op.node_oom = not op.oom

    def _ended(self, op: Op) -> None:
        pid, status, usage = os.wait4(op.pid, os.WNOHANG)
        if pid == 0:
            return
        self.poll.unregister(op.pidfd)
        self.op = None
        self._oom_checks = 0
        code = os.waitstatus_to_exitcode(status)
        watch, group = self._watch, self.group
        alone = watch is not None and group is not None and group.number("pids") == 1
        now = Counters(self.group, self._limiting, alone=alone)
        self._judge_oom(op, now)
        pids_hit = self._overran(op, now, failed=code != 0)
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
                    "cpu": _cpu(op.before, now, waited_for=usage.ru_utime + usage.ru_stime),
                    "peak_memory": self._peak(op, usage.ru_maxrss * 1024),
                    "oom": op.oom,
                    "node_oom": op.node_oom,
                    "pids_hit": pids_hit,
                    "leftover": leftover,
                }
            }
        )
        os.close(op.pidfd)  # the caller waits for what is above

    def _overran(self, op: Op, now: Counters, *, failed: bool) -> bool:
        """Whether the limit of processes is why it failed, or what it left is a fork bomb."""
        if not self.group or now.pids <= op.before.pids:
            return False
        return failed or self.group.overrun(before=op.before.pids)

    def _peak(self, op: Op, largest: int) -> int:
        peak = self.group.number("memory_peak") if self.group else None
        if peak is None or op.memory is None or op.peak is None:
            return largest
        # A child's largest size begins with that of this process, whose memory it borrows until its exec.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        single = largest if largest > own else 0
        if peak == op.peak and peak > op.memory:
            # The peak of an earlier op, where it cannot be set back, says nothing of this one.
            return largest
        return max(single, peak - op.memory)


def _cpu(before: Counters, now: Counters, *, waited_for: float) -> float:
    if before.cpu is None or now.cpu is None:
        return waited_for
    return round(max(waited_for, now.cpu - before.cpu), 6)


def drop_privileges(permitted: int) -> None:
    """Keep the capabilities that Docker leaves to a container's root, less one."""
    syscalls.bound_capabilities(CAPABILITIES)
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.capset((CAPABILITIES | SYS_RESOURCE) & permitted)
    # The moment between a child's birth and its exec shows this process's memory inside the sandbox.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
