"""Computes how far a warm-up is, from its plan and what the nodes have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .warmups import Copy

_NO_ROOM = "fits on no node; raise nodeAgent.config.budget, add nodes, or warm fewer images"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an image, or one copy of it, cannot be prepared. `node`: None if it concerns all nodes.

    `kept`: a node had the image by then; where it is, it stays ready.
    """

    image: str
    message: str
    node: str | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of a warm-up. `open_copies`: neither ready nor failed; `done`: nothing more will happen."""

    ready: int
    failed: int
    copies: int
    copies_ready: int
    open_copies: int
    bytes: int
    done: bool
    errors: tuple[Failure, ...]


def progress(
    images: Collection[str],
    *,
    copies: Mapping[str, Sequence[Copy]],
    present: Mapping[Copy, int],
    refused: Mapping[str, Failure],
    failed: Mapping[Copy, str],
    settled: bool,
    standing: bool = False,
) -> Progress:
    """Compute a warm-up's progress.

    `copies`: of all warm-ups, by image. `refused`: images that no other node can have. `failed`: copies that are not
    tried again. `settled`: no node prepares anything now, so that what has no room gets none. `standing`: it was done before,
    so that an image on one node is ready, although others get it, too.
    """
    ready = lost = done = size = open_copies = total = 0
    errors: list[Failure] = []
    for image in images:
        its = copies.get(image, ())
        if image in refused:
            errors.append(refused[image])
            its = [copy for copy in its if copy in present] if refused[image].kept else []
            if not its:
                lost += 1
                continue
        here = [copy for copy in its if copy in present]
        gone = [copy for copy in its if copy not in present and copy in failed]
        total += len(its)
        done += len(here)
        size += sum(present[copy] for copy in here)
        open_copies += len(its) - len(here) - len(gone)
        errors += [Failure(image, failed[copy], copy.node) for copy in gone]
        if not its:
            if settled:
                lost += 1
                errors.append(Failure(image, _NO_ROOM))
        elif standing and here:
            ready += 1
        elif len(here) + len(gone) == len(its):
            ready += bool(here)
            lost += not here
    return Progress(
        ready=ready,
        failed=lost,
        copies=total,
        copies_ready=done,
        open_copies=open_copies,
        bytes=size,
        done=ready + lost == len(images),
        errors=tuple(errors),
    )


def all_failed(images: Collection[str]) -> Progress:
    """Return the progress of a warm-up that no node can carry out."""
    return Progress(
        ready=0, failed=len(images), copies=0, copies_ready=0, open_copies=0, bytes=0, done=True, errors=()
    )
