"""Which tests of the cluster share a parallel worker: those that need the same release, or what a node has only once.

By their names alone, since xdist's own groups (`--dist loadgroup`, xdist 3.8) do nothing under pytest 9.2.
"""

from __future__ import annotations

from pathlib import PurePath

from xdist.scheduler import LoadScopeScheduling

RUNTIMES = ("gvisor", "runc")
# An agent has its place on a node, and releases its images.
NODE_AGENTS = (
    "test_image_warmups",
    "test_lazy_images",
    "test_node_agent",
    "test_registry_cache",
    "test_slot_conformance",
    "test_slot_creates",
    "test_slot_pods",
)
# What takes longest begins first; the rest in the order of the files.
ORDER = ("on gvisor", "on runc", "node agents", "prime")


def group(nodeid: str) -> str:
    """Return the group of a test: its runtime if it uses the release of `stack`."""
    path, _, name = nodeid.partition("::")
    file = PurePath(path)
    if file.stem in NODE_AGENTS:
        return "node agents"
    if file.stem == "test_versions_cold":
        return "on runc"
    parameters = name.partition("[")[2].removesuffix("]").split("-")
    runtimes = [runtime for runtime in RUNTIMES if runtime in parameters]
    if runtimes:
        return f"on {runtimes[0]}"
    return "prime" if file.parent.name == "prime" else file.stem


def rank(nodeid: str) -> int:
    """Return the place of a test's group among all."""
    its = group(nodeid)
    return ORDER.index(its) if its in ORDER else len(ORDER)


class GroupScheduling(LoadScopeScheduling):
    """Gives a group to one worker, in the order of the tests (with `--no-loadscope-reorder`)."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
