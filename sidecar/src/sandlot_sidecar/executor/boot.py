"""Boots the sandbox: builds its root, starts its init there, and does so again after a reset or the init's end."""

from __future__ import annotations

import time

from . import cleaning, held, init, rootfs, runner_factory, syscalls, tiny
from .proof import Fresh

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .limits import Limits
    from .namespaces import Home
    from .plan import Plan
    from .pod import Pod
    from .store import Store


SWEEP_AFTER = 0.5  # seconds after a root was built: by then a reset has been answered
SWEEP_AGAIN = 5.0
SWEPT_LATER = 16  # what is left takes at most such a part of the volume


class Boot:
    """The root and the init that are there now, by which names and in which network."""

    def __init__(
        self,
        *,
        home: Home,
        plan: Plan,
        pod: Pod | None,
        limits: Limits,
        hostname: str,
        adopt: Callable[[runner_factory.Child], None],
    ) -> None:
        """`adopt` gets the process that deletes what earlier roots have left."""
        self.home = home
        self.plan = plan
        self.init: init.Init
        self.root: rootfs.Root
        self.running = False
        self.fresh: Fresh | None = None  # what the first root looked like, which a reset is compared with
        self.sweep_at: float | None = None  # when what earlier roots have left is to be deleted
        self.device = 0  # of the files in the pod's writable layer
        self.notes: list[str] = []
        # Those of the next one to be built.
        self.network = "full"
        self.hostname = hostname
        self._program = tiny.Program()
        self._pod = pod
        self._limits = limits
        self._adopt = adopt

    def build_first(self) -> None:
        """As `build`; in a container with what the kernel allows there, since its root is not ours to choose."""
        while True:
            try:
                return self.build()
            except OSError as error:
                if self._pod is None or not self.plan.overlay:
                    raise
                if self.plan.store is not None:
                    self._pod.drop_store(self.home)
                self.notes += self.plan.fall_back(str(error))

    def build(self) -> None:
        """Make a root and an init in it. Raises OSError and ExecutorError."""
        prefix = part = ""
        self.home.leave_for_new_mounts()
        if self.plan.overlay:
            builder = rootfs.Builder(
                home=self.home,
                plan=self.plan,
                hostname=self.hostname,
                disk=self._limits.disk,
                shm=self._limits.shm,
            )
            builder.assemble()
            self.notes += [note for note in builder.notes if note not in self.notes]
            prefix, part = rootfs.ROOT, builder.part
        self.init = self._start_init(prefix)
        try:
            self.root = rootfs.open_layers(overlay=self.plan.overlay, part=part)
            if self.plan.overlay:
                rootfs.pivot()
            self.init.go()
        except BaseException:
            self.init.kill()
            raise
        self.running = True
        if self.plan.store is not None:
            self._plan_sweep(self.plan.store)
            self.device = held.device()
        if self.fresh is None and self.plan.overlay:
            self.fresh = Fresh(home=self.home, root=self.root)

    def rebuild(self) -> None:
        """Drop the root, with all that was written, and make another."""
        self.root.close()
        self.build()

    def renew(self) -> bool:
        """After `stop`: begin anew with the same files where they can stay; whether they are still there."""
        if self.home.rootless or not self.plan.overlay:
            # A /proc can only be mounted there while an unmasked one is in sight, which the root hides.
            self.rebuild()
            return False
        self.replace_init()
        return True

    def replace_init(self) -> None:
        """Start a new one in the root that is there."""
        for point in reversed(self.init.mounts):
            syscalls.umount(point)
        self.init = self._start_init("")
        self.init.go()
        self.running = True

    def stop(self) -> None:
        """End the init, and with it all that runs in the sandbox."""
        if self.running:
            self.running = False
            self.init.kill()

    def _start_init(self, prefix: str) -> init.Init:
        steps = cleaning.STEPS if self.fresh is not None else {cleaning.HOSTNAME, cleaning.IPC}
        return init.start(
            home=self.home,
            program=self._program,
            prefix=prefix,
            hostname=self.hostname if cleaning.HOSTNAME in steps else None,
            own_network=self.network == "none",
            own_ipc=cleaning.IPC in steps,
        )

    def _plan_sweep(self, store: Store) -> None:
        used = held.space(store.directory)[0] if store.bounded else 0
        if 2 * used > store.size:
            # What is left would take room from the next owner, whose commands would find the disk full.
            self.sweep_at = None
            runner_factory.fork_work(store.sweep).forget()
        elif SWEPT_LATER * used > store.size:
            self._sweep(store)
        elif self.sweep_at is None:
            # A fork costs a third of a reset: the next owner need not wait for it.
            self.sweep_at = time.monotonic() + SWEEP_AFTER

    def look(self) -> None:
        """Delete what earlier roots have left, when its time has come."""
        if self.sweep_at is None or self.plan.store is None or time.monotonic() < self.sweep_at:
            return
        try:
            self._sweep(self.plan.store)
        except OSError:  # the sandbox's memory or its processes are all in use
            self.sweep_at = time.monotonic() + SWEEP_AGAIN

    def _sweep(self, store: Store) -> None:
        self._adopt(runner_factory.fork_work(store.sweep))
        self.sweep_at = None
