"""Removes what a dead instance left: processes, control groups, mounts and its directory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from .cgroups import remove_groups
from .layout import InstanceDir
from .processes import kill_marked
from .trees import remove_tree, unmount_below

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Removed:
    """What was removed of one instance; `problems` lists what could not be."""

    id: str
    processes: list[int] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    cgroups: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def remove_remains(directory: InstanceDir, cgroups: list[Path], search: bool = True) -> Removed:
    """Remove everything of one instance. Never raises: failures go into `problems`, and a later cleanup retries.

    `search=False` skips the scan of all processes, for a sidecar that ended cleanly. Blocks.
    """
    removed = Removed(directory.id)
    if search:
        try:
            removed.processes = kill_marked(str(directory.config))
        except (OSError, TimeoutError) as error:
            removed.problems.append(str(error))
    present = [path for path in cgroups if path.exists()]
    try:
        left = remove_groups(present)
        removed.cgroups = [str(path) for path in present if path not in left]
        removed.problems += [f"{path}: still busy" for path in left]
    except OSError as error:
        removed.problems.append(f"cgroup: {error}")
    try:
        removed.mounts = unmount_below(directory.path)
        if not removed.problems:  # otherwise the record must stay: it says where the rest is
            remove_tree(directory.path)
    except OSError as error:
        removed.problems.append(str(error))
    for problem in removed.problems:
        log.warning("instance %s: %s", directory.id, problem)
    return removed
