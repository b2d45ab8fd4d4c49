"""Attaches the BPF programs to the sandbox's cgroup that restrict what its processes may send."""

from __future__ import annotations

import os

from . import bpf
from .errors import ExecutorError

# BPF attach type -> program type: egress packets, connects to IPv4 and to IPv6.
PROGRAM_TYPES = {1: 8, 10: 18, 11: 18}


class Egress:
    """The programs attached to one cgroup."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._programs: dict[int, int] = {}
        # A container's group outlives its sidecar: an earlier sidecar's policy would apply beside later ones.
        self._left = _programs_on(directory)

    def set(self, programs: dict[int, bytes]) -> None:
        """Replace the policy, each program atomically. Raises OSError, and then the old policy stays in force."""
        if not programs:
            self.clear()
            return
        loaded: dict[int, int] = {}
        first = not self._programs
        try:
            for attach, code in programs.items():
                loaded[attach] = bpf.load_program(PROGRAM_TYPES[attach], attach, code)
            for attach in programs:
                old = self._programs.get(attach)
                bpf.attach_program(self._directory, loaded[attach], attach, instead_of=old)
                self._programs[attach] = loaded.pop(attach)
                if old is not None:
                    os.close(old)
            self._drop_left()
        except OSError:
            for fd in loaded.values():
                os.close(fd)
            if first:
                self._detach()  # a policy that is only partly attached
            raise

    def clear(self) -> None:
        """Remove the policy."""
        self._detach()
        self._drop_left()

    def _detach(self) -> None:
        for attach, fd in self._programs.items():
            bpf.detach_program(self._directory, fd, attach)
            os.close(fd)
        self._programs.clear()

    def _drop_left(self) -> None:
        while self._left:
            attach, program = self._left[-1]
            bpf.detach_program(self._directory, program, attach)
            os.close(program)
            self._left.pop()

    def close(self) -> None:
        """Close all descriptors; the kernel detaches the programs when the cgroup is removed."""
        for fd in [*self._programs.values(), *(program for _, program in self._left)]:
            os.close(fd)
        self._programs.clear()
        self._left.clear()


def enforce(egress: Egress | None, programs: dict[str, str], *, directory: int | None) -> Egress | None:
    """Replace the policy of a cgroup's `directory`, and return what enforces it. Raises ExecutorError."""
    parsed = {int(place): bytes.fromhex(code) for place, code in programs.items()}
    if directory is None:
        if parsed:
            raise ExecutorError("unsupported", "a policy needs a writable cgroup v2: mount one")
        return None
    enforced = egress or Egress(directory)
    try:
        enforced.set(parsed)
    except OSError as error:
        if egress is None:
            enforced.close()
        raise ExecutorError("unsupported", f"the kernel rejected the BPF program: {error}") from error
    return enforced


def _programs_on(directory: int) -> list[tuple[int, int]]:
    """Return attach types and descriptors of attached programs; none if the kernel cannot list them."""
    found: list[tuple[int, int]] = []
    for attach in PROGRAM_TYPES:
        try:
            for number in bpf.attached_programs(directory, attach):
                found.append((attach, bpf.open_program(number)))
        except OSError:
            continue
    return found
