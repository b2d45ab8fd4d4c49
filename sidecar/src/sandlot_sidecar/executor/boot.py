"""Builds the sandbox's root and starts its init there, at setup and again after a reset or the init's exit."""

from __future__ import annotations

import time

from . import disk_space, init, init_program, reset_steps, rootfs, runner_factory, syscalls
from .proof import FreshState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .limits import Limits
    from .namespaces import Home
    from .plan import Plan
    from .pod import Pod
    from .store import Store


SWEEP_AFTER = 0.5  # seconds after a root was built: by then the reset has been answered
SWEEP_RETRY = 5.0
SWEEP_LATER_SHARE = 16  # sweep later while old parts use at most 1/16 of the volume


class Boot:
    """The current root and init, and the host name and network of the next ones."""

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
        """`adopt` receives the child process that deletes the files of earlier roots."""
        self.home = home
        self.plan = plan
        self.init: init.Init
        self.root: rootfs.Root
        self.running = False
        self.fresh: FreshState | None = None  # state of the first root, compared after each reset
        self.sweep_at: float | None = None  # when to delete the files of earlier roots
        self.device = 0  # st_dev of files in the writable layer
        self.notes: list[str] = []
        # For the next init.
        self.network = "full"
        self.hostname = hostname
        self._program = init_program.Program()
        self._pod = pod
        self._limits = limits
        self._adopt = adopt

    def build_first(self) -> None:
        """Build as `build` does; in a container, fall back to what the kernel allows on its root."""
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
        """Build a root and start an init in it. Raises OSError and ExecutorError."""
        prefix = part = ""
        self.home.enter_new_mount_namespace()
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
            self.device = disk_space.layer_device()
        if self.fresh is None and self.plan.overlay:
            self.fresh = FreshState(home=self.home, root=self.root)

    def rebuild(self) -> None:
        """Drop the root with everything written to it, and build another."""
        self.root.close()
        self.build()

    def restart(self) -> bool:
        """Start again after `stop`; return whether the files were kept."""
        if self.home.rootless or not self.plan.overlay:
            # The kernel mounts a new /proc only while an unmasked one is visible, and the root hides it.
            self.rebuild()
            return False
        self.replace_init()
        return True

    def replace_init(self) -> None:
        """Start a new init in the current root."""
        for point in reversed(self.init.mounts):
            syscalls.umount(point)
        self.init = self._start_init("")
        self.init.go()
        self.running = True

    def stop(self) -> None:
        """Kill the init, and with it every process of the sandbox."""
        if self.running:
            self.running = False
            self.init.kill()

    def _start_init(self, prefix: str) -> init.Init:
        steps = reset_steps.STEPS if self.fresh is not None else {reset_steps.HOSTNAME, reset_steps.IPC}
        return init.start(
            home=self.home,
            program=self._program,
            prefix=prefix,
            hostname=self.hostname if reset_steps.HOSTNAME in steps else None,
            own_network=self.network == "none",
            own_ipc=reset_steps.IPC in steps,
        )

    def _plan_sweep(self, store: Store) -> None:
        used = disk_space.space(store.directory)[0] if store.bounded else 0
        if 2 * used > store.size:
            # Old parts would take space from the next owner, whose commands would find the disk full.
            self.sweep_at = None
            runner_factory.fork_work(store.sweep).forget()
        elif SWEEP_LATER_SHARE * used > store.size:
            self._sweep(store)
        elif self.sweep_at is None:
            # A fork costs a third of a reset: do not delay the next owner for it.
            self.sweep_at = time.monotonic() + SWEEP_AFTER

    def sweep_if_due(self) -> None:
        """Start deleting the files of earlier roots if that is due."""
        if self.sweep_at is None or self.plan.store is None or time.monotonic() < self.sweep_at:
            return
        try:
            self._sweep(self.plan.store)
        except OSError:  # the sandbox has reached its memory or process limit
            self.sweep_at = time.monotonic() + SWEEP_RETRY

    def _sweep(self, store: Store) -> None:
        self._adopt(runner_factory.fork_work(store.sweep))
        self.sweep_at = None
