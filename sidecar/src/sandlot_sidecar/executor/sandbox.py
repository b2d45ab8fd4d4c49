"""The sandbox as the executor holds it: built, limited, given runners, reset, and taken down."""

from __future__ import annotations

import os
import signal
import socket
import time

from . import cgroups, cleaning, held, init, nursery, rootfs, spawn, syscalls
from .egress import Egress
from .errors import ExecutorError, SetupError
from .group import Group, remove_group
from .memory_watch import MemoryWatch
from .namespaces import Home
from .proof import Fresh
from .seal import seal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .pod import Pod
    from .store import Store

NETWORKS = ("full", "none")
# Files live in memory and count as memory: with a limit, so much of it may be files, and shared memory.
DISK_SHARE = 0.6
SHM_SHARE = 0.15
SHM_SIZE = 64 * 1024 * 1024
CHARGED = 64 << 10  # bytes of a group without processes that count
WATCH_EVERY = 0.2
WATCH_SECONDS = 5.0  # after an op left processes behind; later ones are met when the next runner is made
EMPTY_SECONDS = (
    5.0  # for the groups of what a reset has killed; what has a member then is told as a difference
)
LOST_WITHIN = 10.0
LOST_MOST = 5
KILLED_KEPT = 64  # runners that were killed, of which the server may still ask why


class Sandbox:
    """Everything there is of the one sandbox; each method leaves it usable or raises ExecutorError."""

    def __init__(self) -> None:
        self.home: Home | None = None
        self.children: dict[int, nursery.Child] = {}
        self.running = False
        self.init: init.Init
        self.root: rootfs.Root
        self.notes: list[str] = []
        self.limits: dict[str, Any] = {}
        self.network = "full"
        self.hostname = self._named = "sandbox"  # now, and before a claim said otherwise
        self._pod: Pod | None = None
        self._plan: rootfs.Plan
        self._built_for: int | None = None  # bytes of disk, where no claim says otherwise
        self._cgroup: cgroups.Sandbox | None = None
        self._egress: Egress | None = None
        self._watch: MemoryWatch | None = None
        self._retired: list[Group] = []
        self._charged: list[str] = []  # groups without processes, but with memory: of shared memory
        self._watch_until = self._look_at = self._sweep_at = 0.0
        self._number = 0
        self._device = 0  # of the files in the pod's writable layer
        self._fresh: Fresh | None = None
        self._lost: list[float] = []
        self._killed: dict[
            int, tuple[str, dict[str, Any]]
        ] = {}  # a runner's pid: its group, and its op's facts

    def setup(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make it, once; raises ExecutorError."""
        if self.home is not None:
            raise ExecutorError("conflict", "the sandbox is set up already")
        self.limits = _checked(message.get("limits"))
        self.hostname = self._named = str(message.get("hostname") or "sandbox")
        try:
            self.home = home = Home()
            self._pod = pod = _enter_pod(home, message)
            self._plan = rootfs.Plan(message.get("root") or {}, target=pod is not None)
            self._built_for = self._plan.disk
            if pod is not None:
                self._cgroup, self._plan.store = pod.group, pod.store
            else:
                self._cgroup = cgroups.find(home, message.get("cgroup_parent"))
            self.notes = (pod.notes if pod is not None else []) + self._limit()
            self._build_first()
        except OSError as error:
            self.end()
            raise SetupError(f"the sandbox cannot be made: {error}") from error
        except ExecutorError:
            self.end()
            raise
        shells = {}
        for name in ("sh", "bash"):
            try:
                shells[name] = spawn.find_shell(name)
            except ExecutorError:
                # An image without a shell still runs an argv.
                shells[name] = ""
        return {
            "notes": self.notes,
            "overlay": self._plan.overlay,
            "cgroup": f"v{self._cgroup.group.version}" if self._cgroup else "none",
            "bash": shells["bash"].endswith("bash"),
            "shell": shells["sh"] or None,
            "init_pid": self.init.pid,
            "disk_limit": self._disk_limit,
            **(
                {"env": pod.environment, "workdir": pod.workdir, "guarded": pod.guarded}
                if pod is not None
                else {}
            ),
        }

    @property
    def target_fd(self) -> int:
        """Becomes readable at the end of the container that the sandbox is made in; -1 where there is none."""
        return self._pod.fd if self._pod is not None else -1

    def target_lost(self) -> dict[str, Any]:
        """The container has ended: say so, once."""
        assert self._pod is not None
        os.close(self._pod.fd)
        self._pod.fd = -1
        return {"event": "target_lost"}

    @property
    def doorbell(self) -> int:
        """Becomes readable when the sandbox holds more memory than it may; -1 where the kernel sees to that."""
        return self._watch.doorbell if self._watch is not None else -1

    def counters(self) -> list[int]:
        """Files by which the server sees whether the container ran out of memory: this process may die with it."""
        return [] if self._cgroup is None else self._cgroup.counters()

    def _limit(self) -> list[str]:
        notes = []
        if self._cgroup is not None:
            notes += self._cgroup.apply(self.limits)
            self._watch_memory(self._cgroup)
        else:
            if any(self.limits.get(name) is not None for name in ("memory", "pids")):
                notes.append("limits: no writable cgroup, using rlimits per process")
            if self.limits.get("cpu") is not None:
                notes.append("limits: no writable cgroup, cpu is not limited")
            notes.append(
                "processes: no writable cgroup, an op's descendants are found by session and environment"
            )
        disk = self._disk()
        asked = self._plan.disk
        store = self._plan.store
        if store is not None:
            if asked and not store.bounded:
                notes.append("disk: what is written is measured while commands run")
            if asked and store.bounded and asked > store.size:
                notes.append(f"disk: the pod's volume holds {store.size} of the {asked} bytes asked for")
        elif asked and disk is not None and disk < asked:
            notes.append(
                f"disk: files are kept in memory, so {disk} of the {asked} bytes asked for can be used"
            )
        return notes

    def _watch_memory(self, cgroup: cgroups.Sandbox) -> None:
        if not cgroup.loose:
            return
        cores = self.limits.get("cpu")
        if self._watch is None:
            self._watch = MemoryWatch(cgroup.group, cores=cores)
        else:
            self._watch.set_cores(cores)

    def _disk(self) -> int | None:
        memory, asked = self.limits.get("memory"), self._plan.disk
        if memory is None or self._cgroup is None or self._plan.store is not None:
            return asked
        share = int(memory * DISK_SHARE)
        return share if asked is None else min(share, asked)

    def _shm(self) -> int:
        memory = self.limits.get("memory")
        return SHM_SIZE if memory is None else min(SHM_SIZE, max(4096, int(memory * SHM_SHARE)))

    def _build_first(self) -> None:
        """As `_build`; in a container with what the kernel allows there, since its root is not ours to choose."""
        assert self.home is not None
        while True:
            try:
                return self._build()
            except OSError as error:
                if self._pod is None or not self._plan.overlay:
                    raise
                if self._plan.store is not None:
                    self._pod.drop_store(self.home)
                self.notes += self._plan.fall_back(str(error))

    def _build(self) -> None:
        assert self.home is not None
        prefix = part = ""
        self.home.leave_for_new_mounts()
        if self._plan.overlay:
            builder = rootfs.Builder(
                home=self.home, plan=self._plan, hostname=self.hostname, disk=self._disk(), shm=self._shm()
            )
            builder.assemble()
            self.notes += [note for note in builder.notes if note not in self.notes]
            prefix, part = rootfs.ROOT, builder.part
        self.init = self._start_init(prefix)
        try:
            self.root = rootfs.open_layers(overlay=self._plan.overlay, part=part)
            if self._plan.overlay:
                rootfs.pivot()
            self.init.enter()
            self.init.go()
        except BaseException:
            self.init.kill()
            raise
        self.running = True
        if self._plan.store is not None:
            self._sweep_store(self._plan.store)
            self._device = held.device()
        if self._fresh is None and self._plan.overlay:
            self._fresh = Fresh(home=self.home, root=self.root)

    def _start_init(self, prefix: str) -> init.Init:
        assert self.home is not None
        steps = cleaning.STEPS if self._fresh is not None else {cleaning.HOSTNAME, cleaning.IPC}
        return init.start(
            home=self.home,
            prefix=prefix,
            hostname=self.hostname if cleaning.HOSTNAME in steps else None,
            own_network=self.network == "none",
            own_ipc=cleaning.IPC in steps,
        )

    def _sweep_store(self, store: Store) -> None:
        """Delete what earlier roots have left, beside everything else."""
        child = nursery.beside(store.sweep)
        if store.bounded and 2 * held.space(store.directory)[0] > store.size:
            # What is left would take room from the next owner, whose commands would find the disk full.
            child.forget()
        else:
            self.children[child.fd] = child

    def _limit_runner(self, group: Group) -> None:
        memory, pids = self.limits.get("memory"), self.limits.get("pids")
        # A little below the sandbox's own limit, so that an op that runs alone is the one that is struck; where the
        # kernel strikes nobody it is ours to choose.
        below = 0 if memory is None or self._watch is not None else memory // 50
        group.limit("memory_limit", None if memory is None else max(memory - below, 1 << 20))
        group.limit("pids_limit", None if pids is None else pids + 1)

    def _removed(self, group: Group) -> bool:
        assert self._cgroup is not None
        parent = self._cgroup.group
        if self._watch is not None and self._is_charged(group.name):
            group.close()
            self._charged.append(group.name)
            return True
        if group.remove(parent):
            return True
        # A bomb whose first process ended before the limit was reached would burn the sandbox's cpu for ever.
        left = parent.child(group.name)
        try:
            if left.overrun():
                self._kill_group(left, spare=0)
        finally:
            left.close()
        return group.remove(parent)

    def _is_charged(self, name: str) -> bool:
        """Whether memory of a group without processes is held all the same, which would be forgotten with the group."""
        assert self._cgroup is not None
        group = self._cgroup.group.child(name)
        try:
            return (group.number("memory") or 0) > CHARGED and not group.members()
        finally:
            group.close()

    def _forget_charged(self, *, all_of_it: bool = False) -> None:
        assert self._cgroup is not None
        group = self._cgroup.group
        self._charged = [
            name
            for name in self._charged
            if (not all_of_it and self._is_charged(name))
            or not all(remove_group(each, name) for each in set(group.directories.values()))
        ]

    def _kill_group(self, group: Group, *, spare: int) -> int:
        return group.kill(spare=spare, lost=self.init.end if group.loose else None)

    def runner(self) -> tuple[int, socket.socket]:
        """Bring a runner into the world: its pid and its channel. Raises OSError."""
        self.check_running()
        assert self.home is not None
        self.look_at_retired()
        group, limiting = None, []
        if self._cgroup is not None:
            self._number += 1
            limiting = self._cgroup.limiting
            group = self._cgroup.group.child(_group_name(self._number))
            self._limit_runner(group)
        child, channel = nursery.bear(
            home=self.home,
            init=self.init,
            group=group,
            limiting=limiting,
            devpts=self.root.devpts,
            limits=self.limits,
            pod=self._pod,
            watch=self._watch,
            number=self._number,
        )
        self.children[child.fd] = child
        return child.pid, channel

    def kill(self, runner: int) -> int:
        """Kill all of an op from here, where no bomb of the sandbox takes processor time away; how many died."""
        for child in self.children.values():
            if child.pid == runner and child.group:
                killed = self._kill_group(child.group, spare=runner)
                self._limit_runner(child.group)
                return killed
        name, _ = self._killed.get(runner, ("", {}))
        if self._cgroup is None or name not in (group.name for group in self._retired):
            return 0
        left = self._cgroup.group.child(name)
        try:
            return self._kill_group(left, spare=0)
        finally:
            left.close()

    def lost(self, runner: int) -> dict[str, Any]:
        """The facts of the op whose runner was lost: whose memory was used up, if any was."""
        for child in self.children.values():
            if child.pid == runner:
                return self._memory_facts(child)
        return self._killed.get(runner, ("", {}))[1]

    def _memory_facts(self, child: nursery.Child) -> dict[str, Any]:
        if self._watch is not None and self._watch.take_mark(child.number):
            return {"signal": int(signal.SIGKILL), "oom": True}
        return child.memory_facts(self._cgroup.limiting if self._cgroup is not None else [])

    def check_running(self) -> None:
        """Raises ExecutorError unless the sandbox is set up."""
        if self.home is None or not self.running:
            raise ExecutorError("conflict", "the sandbox is not set up")

    def alive(self) -> bool:
        """Whether the init lives; it takes all others along before its own end can be seen."""
        self.check_running()
        assert self.home is not None
        return not self.init.ending(self.home)

    def child_ended(self, fd: int) -> None:
        """A runner has gone: forget it, and its group as soon as that is empty."""
        child = self.children.pop(fd)
        child.reap()
        if child.status and child.group:
            # Now: the kernel's counters go with the group.
            self._killed[child.pid] = child.group.name, self._memory_facts(child)
            if len(self._killed) > KILLED_KEPT:
                del self._killed[next(iter(self._killed))]
        child.forget()
        if child.group and not self._removed(child.group):
            self._retired.append(child.group)
            now = time.monotonic()
            self._watch_until, self._sweep_at = now + WATCH_SECONDS, now + WATCH_EVERY

    def patience(self) -> int | None:
        """Milliseconds until `look` has something to do; None: nothing."""
        if not self._retired:
            return None
        now = time.monotonic()
        if self._watch is not None:
            return max(0, int((min(self._look_at, self._sweep_at) - now) * 1000) + 1)
        return int(WATCH_EVERY * 1000) if now < self._watch_until else None

    def look(self) -> None:
        """At what ops have left behind: remove the groups that are empty by now, and end what takes too much."""
        now = time.monotonic()
        if self._retired and now >= self._sweep_at:
            self._sweep_at = now + WATCH_EVERY
            self.look_at_retired()
        if self._retired and self._watch is not None and now >= self._look_at:
            self._look_at, _ = self._watch.look(None)

    def look_at_retired(self) -> None:
        """Remove the groups that are empty by now, and end the bombs among them: one grows before it can be told."""
        if self._charged:
            self._forget_charged()
        if not self._retired:
            return
        nursery.reap_orphans({self.init.pid, *(child.pid for child in self.children.values())})
        self._retired = [group for group in self._retired if not self._removed(group)]

    def _await_empty_groups(self) -> None:
        """Remove the groups of all that was killed: under gVisor a process leaves its own some time after its end."""
        deadline, pause = time.monotonic() + EMPTY_SECONDS, 0.001
        while True:
            self.look_at_retired()
            if self._charged:
                self._forget_charged(all_of_it=True)  # what was shared ends with the sandbox's namespaces
            if not (self._retired or self._charged) or time.monotonic() > deadline:
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def too_much_memory(self) -> None:
        """A look has found the sandbox above its limit of memory: kill the largest, and so on until it is not."""
        assert self._watch is not None
        assert self._cgroup is not None
        self._watch.stop_ringing()
        parent = self._cgroup.group
        runners = {child.group.name: child for child in self.children.values() if child.group}
        groups = [parent.child(name) for name in (*runners, *(group.name for group in self._retired))]
        try:
            groups.sort(key=lambda group: group.number("memory") or 0)
            while groups and self._watch.excess():
                largest = groups.pop()
                child = runners.get(largest.name)
                if child is not None:
                    self._watch.mark(child.number)
                # Not its init, should it be a bomb: the runner, which looks for bombs, tells the server before.
                largest.kill(spare=child.pid if child is not None else 0, seconds=1.0)
                if child is not None:
                    self._limit_runner(largest)
                self._watch.settle(largest)
                largest.close()
        finally:
            for group in groups:
                group.close()

    def apply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Set limits, network and host name of a claim."""
        self.check_running()
        network = message.get("network") or self.network
        if network not in NETWORKS:
            raise ExecutorError("bad_request", "network is full or none", field="network")
        notes: list[str] = []
        if message.get("limits") is not None:
            notes = self._set_limits(message["limits"])
            self._resize(notes)
            for child in self.children.values():
                if child.group:
                    self._limit_runner(child.group)
        hostname = message.get("hostname")
        if network != self.network:
            self.hostname = str(hostname or self.hostname)
            self._switch(network)
        elif hostname and hostname != self.hostname:
            self.hostname = str(hostname)
            socket.sethostname(self.hostname)
        return {"notes": notes}

    def egress(self, message: dict[str, Any]) -> dict[str, Any]:
        """Set where its processes may send, those that run too; raises ExecutorError where that cannot be held."""
        self.check_running()
        directory = self._cgroup.group.directories.get("net") if self._cgroup is not None else None
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

    def _set_limits(self, limits: Any) -> list[str]:
        self.limits = _checked(limits)
        self._plan.disk = self.limits.get("disk") or self._built_for
        return self._limit()

    def _resize(self, notes: list[str]) -> None:
        disk = self._disk()
        if disk is None or not self._plan.overlay or self._plan.store is not None:
            return
        try:
            self.root.resize(disk)
        except OSError as error:
            notes.append(f"disk: the size could not be changed to {disk} bytes: {error.strerror}")

    def _switch(self, network: str) -> None:
        """Give the sandbox another network: its processes begin anew, its files stay where they can."""
        self.network = network
        self._renew()

    def _renew(self) -> bool:
        """Replace the init and everything that ran; whether the files are still there."""
        assert self.home is not None
        self._kill_all()
        if self.home.rootless or not self._plan.overlay:
            # A /proc can only be mounted there while an unmasked one is in sight, which the root hides.
            self.root.close()
            self._build()
            return False
        self._replace_init()
        return True

    def _replace_init(self) -> None:
        """A new one in the root that is there."""
        for point in reversed(self.init.mounts):
            syscalls.umount(point)
        self.init = self._start_init("")
        self.init.enter()
        self.init.go()
        self.running = True

    def _kill_all(self) -> None:
        for child in self.children.values():
            try:
                os.kill(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for child in self.children.values():
            child.reap()
        if self.running:
            self.running = False
            self.init.kill()
        for fd in list(self.children):
            self.child_ended(fd)

    def init_lost(self) -> dict[str, Any]:
        """The init died, and all in the sandbox with it: make a new one, or say that it keeps dying and stay without."""
        now = time.monotonic()
        self._lost = [at for at in self._lost if now - at < LOST_WITHIN] + [now]
        if len(self._lost) > LOST_MOST:
            self._kill_all()
            return {"event": "init_given_up"}
        return {"event": "init_lost", "files_kept": self._renew()}

    def reset(self, message: dict[str, Any]) -> dict[str, Any]:
        """Kill all, drop the writable layer, make a fresh one, and compare."""
        self.check_running()
        if not self._plan.overlay:
            raise ExecutorError("no_overlay", "the root is not an overlay: it cannot be reset")
        assert self.home is not None
        assert self._fresh is not None
        began = time.monotonic()
        network = message.get("network") or self.network
        if network not in NETWORKS:
            raise ExecutorError("bad_request", "network is full or none", field="network")
        self.network, self.hostname = network, self._named
        before = os.dup(self.init.namespaces["pid"])
        try:
            self._clean(message.get("limits"))
            proof, equal = self._fresh.compare(
                home=self.home,
                init=self.init,
                before=before,
                root=self.root,
                own_network=self.network == "none",
                group=self._cgroup.group if self._cgroup is not None else None,
                groups=_group_name(""),
            )
        except OSError as error:
            raise SetupError(f"the sandbox cannot be made again: {error}") from error
        finally:
            os.close(before)
        took = (time.monotonic() - began) * 1000
        return {"proof": proof, "equal": equal, "took_ms": round(took, 3), "notes": self.notes}

    def _clean(self, limits: dict[str, Any] | None) -> None:
        if cleaning.PROCESSES in cleaning.STEPS:
            self._kill_all()
        self._await_empty_groups()
        if limits is not None:
            self.notes = self._set_limits(limits)
        if cleaning.ROOT in cleaning.STEPS:
            self.root.close()
            self._build()
        else:
            self._replace_init()

    def usage(self) -> dict[str, Any]:
        """What the sandbox uses now; None where it is not counted."""
        self.check_running()
        group = self._cgroup.group if self._cgroup is not None else None
        used, size = self.root.space()
        pids = group.number("pids") if group else None
        return {
            "memory": group.number("memory") if group else None,
            "memory_peak": group.number("memory_peak") if group else None,
            "cpu": group.cpu_seconds() if group else None,
            "pids": max(0, pids - len(self.children)) if pids is not None else None,
            "disk_used": used,
            "disk_size": size,
        }

    @property
    def _disk_limit(self) -> str:
        """Who holds the sandbox to its disk: the `kernel` at the byte, or looks while commands run (`measured`)."""
        if not self._plan.overlay:
            return "none"
        return "kernel" if self._plan.store is None or self._plan.store.bounded else "measured"

    def quick_disk(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """As `disk`, where no walk is needed; None where one is."""
        self.check_running()
        store = self._plan.store
        if store is None:
            return {"used": 0, "files": 0, "limit": None}
        if not store.bounded:
            return None
        # At most as many files are there as were counted then and have been made since.
        number = held.newest(store.directory)
        counted, at = message.get("counted") or (0, number)
        files, limit = counted + number - at, held.files_limit(self._plan.disk)
        return self._held(held.space(self.root.upper)[0], files, [counted, at]) if files <= limit else None

    def disk(self) -> dict[str, Any]:
        """Bytes and files of the writable layer, and how many there may be of each.

        `cost`: seconds of CPU that this took, a thread's own. `counted`: for the next look.
        """
        store = self._plan.store
        assert store is not None
        assert self.home is not None
        began = time.thread_time()
        number = held.newest(store.directory) if store.bounded else 0
        walk = held.Walk(most=held.files_limit(self._plan.disk))
        walk.tree(self.root.upper)
        if not store.bounded:
            walk.deleted(self.home, device=self._device)
        used = held.space(self.root.upper)[0] if store.bounded else walk.bytes
        answer = self._held(used, walk.files, [walk.files, number])
        return {**answer, "cost": time.thread_time() - began}

    def _held(self, used: int, files: int, counted: list[int]) -> dict[str, Any]:
        limit, store = self._plan.disk, self._plan.store
        return {
            "used": used,
            "files": files,
            "limit": limit,
            "hard": store is not None and store.bounded and limit is not None and store.size <= limit,
            "files_limit": held.files_limit(limit),
            "counted": counted,
        }

    def full(self) -> str | None:
        """`sandbox` where its own file system has no room left, `node` where one has none that is not its own."""
        self.check_running()
        upper = self.root.upper if self.root.upper >= 0 else os.open("/", held.DIRECTORY)
        try:
            if not held.is_full(upper):
                return None
        finally:
            if upper != self.root.upper:
                os.close(upper)
        return "sandbox" if self._disk_limit == "kernel" else "node"

    def layer(self, *, merged: bool) -> int:
        """A descriptor of what the sandbox has written, or `merged` with its image: the caller's to close."""
        self.check_running()
        assert self.home is not None
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if merged:
            return os.open("/", flags)
        if not self._plan.overlay:
            raise ExecutorError(
                "no_overlay", "the root is not an overlay: what was written cannot be told from the image"
            )
        if self.home.rootless:
            raise ExecutorError("no_overlay", "without root there is no one layer of what was written")
        return os.open(".", flags, dir_fd=self.root.upper)

    def end(self) -> None:
        """Kill everything and give back what does not go with the process; a second time does nothing."""
        self._kill_all()
        self.look_at_retired()
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        if self._cgroup is not None:
            self._cgroup.remove()
            self._cgroup = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self.home = None


def _group_name(number: int | str) -> str:
    """Of a runner; an earlier sidecar's are not this one's."""
    return f"r{os.getpid()}-{number}"


def _enter_pod(home: Home, message: dict[str, Any]) -> Pod | None:
    """Nothing that only a pod needs is loaded elsewhere; afterwards nothing can be loaded any more."""
    entered = None
    if message.get("target_pid") is not None or message.get("target") is not None:
        from . import pod

        seal()
        entered = pod.enter(home, message)
    seal()
    return entered


def _checked(limits: Any) -> dict[str, Any]:
    limits = dict(limits or {})
    for name in ("cpu", "memory", "pids", "disk"):
        value = limits.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ExecutorError(
                "bad_request", f"limits.{name} must be a positive number", field=f"limits.{name}"
            )
        if name != "cpu":
            limits[name] = int(value)
    return limits
