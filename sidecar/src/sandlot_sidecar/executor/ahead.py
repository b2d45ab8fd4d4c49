"""Prepares the next generation while the current one is in use: its root, its init, and a first command in it.

Nothing of it depends on an owner, and no code of an owner reaches it: it has its own namespaces, and its processes are
no descendants of this generation's. A reset then kills, enters it and proves. Without it a reset builds as before.
"""

from __future__ import annotations

import os
import select
import time

from . import oom_score, wire
from .errors import ExecutorError
from .generation import Generation, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from typing import Any

    from .boot import Boot
    from .conditions import Conditions
    from .runner_factory import Child
    from .runners import Runners

DROP_AFTER = 0.5  # seconds after a claim for another image: by then it has been answered


class Prepared:
    """A generation that has not begun, and its runner if the next owner shall have one at once."""

    def __init__(self, generation: Generation, place: Place) -> None:
        self.generation = generation
        self.place = place
        self.runner: Child | None = None
        self.channel: socket.socket | None = None
        self._score: bytes | None = None  # the runner's oom_score_adj, while it has a lower one

    @property
    def init(self) -> int:
        """The pidfd of its init."""
        return self.generation.init.fd

    def protect(self, proc: int) -> None:
        """Keep the kernel from killing the waiting runner for the memory that an owner takes."""
        assert self.runner is not None
        self._score = oom_score.exchange(proc, self.runner.pid, oom_score.NEVER)

    def give_runner(self, proc: int) -> tuple[Child, socket.socket] | None:
        """Return its runner and the server's end of its channel, or None."""
        if self.runner is None or self.channel is None:
            return None
        if self._score is not None:
            oom_score.exchange(proc, self.runner.pid, self._score)
        return self.runner, self.channel


class Ahead:
    """The next generation of a sandbox, if there is one; it is prepared in steps, between which the executor serves."""

    def __init__(self, boot: Boot, runners: Runners) -> None:
        self._boot = boot
        self._runners = runners
        self._conditions: Conditions | None = None
        self._prepared: Prepared | None = None
        self._steps: Iterator[None] | None = None  # those that are left
        self._waits = False  # for the first command
        self._discarded: Prepared | None = None
        self.drop_at: float | None = None  # when to drop the discarded one

    # Used by the executor's loop.

    @property
    def due(self) -> bool:
        """Whether `step` has work."""
        return self._steps is not None and not self._waits

    def descriptors(self) -> list[int]:
        """Return the descriptors to poll."""
        made = self._prepared
        if made is None:
            return []
        found = [made.init]
        if made.runner is not None:
            found.append(made.runner.fd)
        if self._waits and made.channel is not None:
            found.append(made.channel.fileno())
        return found

    def on_ready(self, ready: list[int]) -> None:
        """Handle the end of the first command, and the loss of a process."""
        made = self._prepared
        if made is None:
            return
        if self._waits and made.channel is not None and made.channel.fileno() in ready:
            self._waits = False
            self.step()
        elif made.init in ready or (made.runner is not None and made.runner.fd in ready):
            self.drop()

    def step(self) -> bool:
        """Take the next step, if one is due; return whether it was the last, and all is prepared."""
        if self._steps is None or self._waits:
            return False
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
            return True
        except (OSError, ExecutorError, wire.WireError) as error:
            os.write(2, f"sandlot: the next generation is not prepared: {error}\n".encode())
            self.drop()
        return False

    # Preparation.

    def prepare(
        self,
        conditions: Conditions,
        *,
        limits: dict[str, Any],
        probe: dict[str, Any],
        exit_code: int,
        keep: bool,
    ) -> bool:
        """Begin to prepare, unless that is done or under way; return whether it is done.

        `probe`: the runner's message for the first command, which ends with `exit_code`. `keep` its runner for the next owner.
        """
        if conditions != self._conditions:
            self.drop()
            self._conditions = conditions
            self._steps = self._prepare(conditions, limits, probe, exit_code, keep)
        return self._steps is None

    def _prepare(
        self,
        conditions: Conditions,
        limits: dict[str, Any],
        probe: dict[str, Any],
        exit_code: int,
        keep: bool,
    ) -> Iterator[None]:
        boot, runners = self._boot, self._runners
        current = Place(boot.home)
        try:
            generation = boot.make(conditions, ahead=True)
            made = self._prepared = Prepared(generation, Place(boot.home))
        finally:
            current.enter()
            current.close()
        yield
        with _Visit(boot, made):
            made.runner, made.channel = runners.fork(
                home=boot.home, init=generation.init, devpts=generation.root.devpts, limits=limits
            )
            # The sandbox's own: the current generation's owner may have replaced it there.
            null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            wire.send_packet(made.channel, {"run": probe}, [null] * 3)
        finally:
            os.close(null)
        self._waits = True
        yield
        _check_ended(made.channel, exit_code)
        if keep:
            made.protect(boot.home.proc)
        else:
            self._dismiss(made)
        yield
        with _Visit(boot, made):
            assert boot.fresh is not None
            proof, equal = boot.fresh.compare(
                home=boot.home,
                init=generation.init,
                before=None,
                root=generation.root,
                own_network=conditions.network == "none",
                settled=list,
            )
        if not equal:
            raise ExecutorError("conflict", f"it differs from a fresh one: {proof['differences']}")

    def _dismiss(self, made: Prepared) -> None:
        """Have the runner exit; from now on it is reaped like any other."""
        assert made.runner is not None
        assert made.channel is not None
        made.channel.close()
        self._runners.adopt(made.runner)
        made.runner = made.channel = None

    # Use.

    def take(self, conditions: Conditions) -> Prepared | None:
        """Return what is prepared for these conditions, which the caller then owns; drop anything else."""
        made = self._prepared
        if (
            made is None
            or self._steps is not None
            or conditions != self._conditions
            or any(map(_has_ended, self.descriptors()))
        ):
            self.drop()
            return None
        self._drop_discarded()
        self._prepared = self._conditions = None
        return made

    def discard(self) -> None:
        """Forget what is prepared, and drop it a moment later: the claim does not wait for the end of its processes."""
        self._drop_discarded()
        self._discarded = self._forget()
        if self._discarded is not None:
            self.drop_at = time.monotonic() + DROP_AFTER

    def drop_discarded_if_due(self) -> None:
        """Drop what is discarded, if that is due."""
        if self.drop_at is not None and time.monotonic() >= self.drop_at:
            self._drop_discarded()

    def drop(self) -> None:
        """Kill and forget what is prepared, and what is discarded; idempotent."""
        self._drop_discarded()
        self._end(self._forget())

    def _drop_discarded(self) -> None:
        made, self._discarded, self.drop_at = self._discarded, None, None
        self._end(made)

    def _forget(self) -> Prepared | None:
        made, self._prepared, self._conditions = self._prepared, None, None
        self._steps, self._waits = None, False
        return made

    def _end(self, made: Prepared | None) -> None:
        if made is None:
            return
        runner = made.runner
        if runner is not None:
            runner.kill()
            runner.forget()
            if runner.group:
                self._runners.retired.add(runner.group)
        if made.channel is not None:
            made.channel.close()
        made.generation.init.end()
        made.generation.root.close()
        made.place.close()


class _Visit:
    """Enters a prepared generation's namespaces, and returns to the current one's."""

    def __init__(self, boot: Boot, made: Prepared) -> None:
        self._current = Place(boot.home)
        self._made = made

    def __enter__(self) -> None:
        self._made.place.enter()

    def __exit__(self, *error: object) -> None:
        self._current.enter()
        self._current.close()


def _check_ended(channel: socket.socket, exit_code: int) -> None:
    """Raise ExecutorError unless the first command has ended with this exit code."""
    received = wire.receive_packet(channel)
    if received is None:
        raise ExecutorError("internal", "its runner was lost")
    message, fds = received
    wire.close_all(fds)
    ended = message.get("ended") or message
    if ended.get("exit_code") != exit_code or ended.get("leftover"):
        raise ExecutorError("internal", f"its first command failed: {message}")


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
