"""Builds the sandbox's root and starts its init there, at setup and again after a reset or the init's exit."""

from __future__ import annotations

import os
import time

from . import disk_space, init, init_program, layers, reset_steps, root, rootfs, runner_factory, syscalls
from .conditions import Conditions
from .errors import ExecutorError, SetupError
from .generation import Generation, Place
from .proof import FreshState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .image import Image
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
        self.root: root.Root
        self.running = False
        self.fresh: FreshState | None = None  # state of the first root, compared after each reset
        self.checked = False  # whether this generation equalled it after the first command, beside the root
        self.sweep_at: float | None = None  # when to delete the files of earlier roots
        self._left: Place | None = None  # the mounts of an earlier root
        self.device = 0  # st_dev of files in the writable layer
        self.shm = 0  # size of /dev/shm
        self.notes: list[str] = []
        # For the next init.
        self.network = "full"
        self.hostname = hostname
        self._network_files: tuple[bytes, bytes] | None = None  # of a pod's container
        self._program = init_program.Program()
        self._pod = pod
        self._limits = limits
        self._adopt = adopt

    def build_first(self) -> None:
        """Build as `build` does; in a container, fall back to what the kernel allows on its root."""
        plan = self.plan
        if plan.lays_images and not self.home.rootless:
            self._prepare_for_images()
        while True:
            try:
                return self.build()
            except OSError as error:
                if self._pod is None or not plan.overlay or not (plan.store or plan.image.is_container):
                    raise
                if plan.store is not None:
                    self._pod.drop_store(self.home)
                self.notes += plan.fall_back(str(error))

    def _prepare_for_images(self) -> None:
        """Do what the first claim with an image would wait for; if it fails, that claim tries again."""
        try:
            self.home.prepare_empty_mounts()
            syscalls.setns(self.home.mnt, syscalls.CLONE_NEWNS)
            self.network_files()
        except OSError as error:
            os.write(2, f"sandlot: the first claim with an image will take longer: {error}\n".encode())
            syscalls.setns(self.home.mnt, syscalls.CLONE_NEWNS)

    def network_files(self) -> tuple[bytes, bytes | None]:
        """Return /etc/resolv.conf and /etc/hosts for the root of a claimed image; None: its own.

        A container's are read once. Call it in the home's mounts.
        """
        if not self.plan.target:
            return layers.read_resolv(), None
        if self._network_files is None:
            self._network_files = layers.read_resolv(), layers.read_hosts(None)
        return self._network_files

    def build(self) -> None:
        """Build a root and start an init in it. Raises OSError and ExecutorError."""
        limits = self._limits
        made = self.make(
            Conditions(self.network, self.hostname, disk=limits.disk, shm=limits.shm, image=self.plan.image)
        )
        self.init = made.init
        self.adopt(made)
        if self.fresh is None and self.plan.overlay:
            self.fresh = FreshState(home=self.home, root=self.root)

    def conditions(self, network: str, hostname: str, limits: dict[str, Any]) -> Conditions:
        """Return what the root and the init of an owner with these limits depend on."""
        disk, shm = self._limits.sizes(limits)
        return Conditions(network, hostname, disk=disk, shm=shm, image=self.plan.image)

    def make(self, conditions: Conditions, *, ahead: bool = False) -> Generation:
        """Build a root and its init, and enter its namespaces; `ahead`: the generation has not begun.

        Raises OSError and ExecutorError.
        """
        prefix = part = ""
        number = 0
        trees = self.plan.image.clone(self.home)
        self.home.enter_new_mount_namespace()
        if self.plan.overlay:
            builder = rootfs.Builder(self.home, self.plan, conditions, ahead=ahead)
            try:
                builder.assemble(trees)
            finally:
                for tree in trees:
                    os.close(tree)
            self.notes += [note for note in builder.notes if note not in self.notes]
            prefix, part, number = root.ROOT, builder.part, builder.number
        init = self._start_init(prefix, conditions.network, conditions.hostname)
        try:
            built = root.open_layers(overlay=self.plan.overlay, part=part)
            if self.plan.overlay:
                root.pivot()
            init.go()
            device = disk_space.layer_device() if self.plan.store is not None else 0
            return Generation(built, init, number=number, device=device, shm=conditions.shm)
        except BaseException:
            init.end()
            raise

    def move(self, place: Place) -> None:
        """Enter the namespaces of a prepared generation. Call `adopt` once the processes of this one have ended."""
        left, little = Place(self.home), self._holds_little()
        self.root.close()
        place.enter()
        place.close()
        self._end_left()
        if little:
            # The kernel waits for all its cores when it ends mounts: not now.
            left.keep_mounts()
            self._left = left
            self.sweep_at = self.sweep_at or time.monotonic() + SWEEP_AFTER
        else:
            left.close()

    def _holds_little(self) -> bool:
        """Return whether what the root and its shared memory hold may stay for a moment."""
        sizes = [disk_space.space("/dev/shm")]
        if self.plan.store is None:
            sizes.append(disk_space.space(self.root.upper))
        return all(SWEEP_LATER_SHARE * used <= size for used, size, _ in sizes)

    def _end_left(self) -> None:
        if self._left is not None:
            self._left.close()
            self._left = None

    def adopt(self, made: Generation) -> None:
        """Make a generation's root the current one; the caller has set its init."""
        self.root, self.device, self.shm = made.root, made.device, made.shm
        self.running, self.checked = True, False
        if self._pod is not None:
            self._pod.set_default_user(of_container=self.plan.image.is_container)
        if self.plan.store is not None:
            if made.number != self.plan.store.number:
                self.plan.store.use(made.number)
            self._plan_sweep(self.plan.store)

    def rebuild(self) -> None:
        """Drop the root with everything written to it, and build another."""
        self.root.close()
        self.build()

    def lay(self, image: Image) -> None:
        """Build a root over another image, whose state then is the fresh one. Call it after `stop`.

        Raises ExecutorError: `bad_request` if the root is over the earlier image again, `setup` if there is none.
        """
        plan, before = self.plan, (self.plan.image, self.fresh, self.notes)
        plan.image, self.fresh = image, None
        self.notes = self.pod_notes()
        try:
            self.rebuild()
        except (OSError, ExecutorError) as error:
            self.stop()
            image.close()
            plan.image, self.fresh, self.notes = before
            try:
                self.rebuild()
            except OSError as worse:
                raise SetupError(f"cannot build the root again after an image failed: {worse}") from error
            message = f"cannot build the root over this image: {error}; is it complete?"
            raise ExecutorError("bad_request", message, field="image.lower") from error
        before[0].close()

    def pod_notes(self) -> list[str]:
        """Return the notes of the container, which hold over every image."""
        return list(self._pod.notes) if self._pod is not None else []

    def open_layers(self, *, merged: bool) -> list[int]:
        """Open the writable layer and what is shared below it, or `merged` the whole root; the caller closes them."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if merged:
            return [os.open("/", flags)]
        if not self.plan.overlay:
            raise ExecutorError("no_overlay", "the root is not an overlay: ask for the merged root")
        if self.home.rootless:
            raise ExecutorError(
                "no_overlay", "a rootless sandbox has several layers: run the sidecar as root"
            )
        opened = [os.open(".", flags, dir_fd=self.root.upper)]
        if self.plan.image.shared is not None:
            opened.append(self.plan.image.shared.open())
        return opened

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
        self.init = self._start_init("", self.network, self.hostname)
        self.init.go()
        self.running = True

    def stop(self) -> None:
        """Kill the init, and with it every process of the sandbox."""
        if self.running:
            self.running = False
            self.init.end()

    def _start_init(self, prefix: str, network: str, hostname: str) -> init.Init:
        steps = reset_steps.STEPS if self.fresh is not None else {reset_steps.HOSTNAME, reset_steps.IPC}
        return init.start(
            home=self.home,
            program=self._program,
            prefix=prefix,
            hostname=hostname if reset_steps.HOSTNAME in steps else None,
            own_network=network == "none",
            own_ipc=reset_steps.IPC in steps,
        )

    def _plan_sweep(self, store: Store) -> None:
        used = disk_space.space(store.directory)[0] if store.bounded else 0
        if SWEEP_LATER_SHARE * used <= store.size:
            # A fork costs a third of a reset: do not delay the next owner for it.
            self.sweep_at = self.sweep_at or time.monotonic() + SWEEP_AFTER
            return
        # Before the fork: the child would hold the mounts, and with them the space of their part.
        self._end_left()
        sweeper = runner_factory.fork_work(store.sweep)
        self.sweep_at = None
        if 2 * used > store.size:
            # Old parts would take space from the next owner, whose commands would find the disk full.
            sweeper.forget()
        else:
            self._adopt(sweeper)

    def sweep_if_due(self) -> None:
        """End the mounts of an earlier root, and start deleting the files of all, if that is due."""
        if self.sweep_at is None or time.monotonic() < self.sweep_at:
            return
        self._end_left()
        store = self.plan.store
        try:
            # A fork costs more than many deletions, under gVisor as much as a third of a short owner's reset.
            if store is not None and not store.sweep_little():
                self._adopt(runner_factory.fork_work(store.sweep))
            self.sweep_at = None
        except OSError:  # the sandbox has reached its memory or process limit
            self.sweep_at = time.monotonic() + SWEEP_RETRY
