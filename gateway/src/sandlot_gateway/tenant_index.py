"""Indexes one tenant's sandboxes for listings: by age, label and group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandlot_contract.ids import SandboxId

from sandlot_gateway.sandboxes import Sandbox


class TenantIndex:
    """Sandboxes of one tenant, oldest first, by label and by group."""

    __slots__ = ("by_group", "by_id", "by_label", "newest", "unsorted")

    def __init__(self) -> None:
        self.by_id: dict[SandboxId, Sandbox] = {}
        self.by_label: dict[str, dict[SandboxId, Sandbox]] = {}
        self.by_group: dict[str, dict[SandboxId, Sandbox]] = {}
        self.newest = 0.0
        self.unsorted = False

    def add(self, sandbox: Sandbox) -> None:
        # A recovered sandbox may be older than one that is here already.
        if sandbox.created_at < self.newest:
            self.unsorted = True
        self.newest = max(self.newest, sandbox.created_at)
        self.by_id[sandbox.id] = sandbox
        for label in sandbox.spec.labels:
            self.by_label.setdefault(label, {})[sandbox.id] = sandbox
        if (group := sandbox.spec.group) is not None:
            self.by_group.setdefault(group.id, {})[sandbox.id] = sandbox

    def remove(self, sandbox: Sandbox) -> None:
        self.by_id.pop(sandbox.id, None)
        for label in sandbox.spec.labels:
            named = self.by_label.get(label)
            if named is not None:
                named.pop(sandbox.id, None)
                if not named:
                    del self.by_label[label]
        group = sandbox.spec.group
        members = None if group is None else self.by_group.get(group.id)
        if group is not None and members is not None:
            members.pop(sandbox.id, None)
            if not members:
                del self.by_group[group.id]

    def newest_first(self, labels: Iterable[str]) -> Iterator[Sandbox]:
        if self.unsorted:
            self._sort()
        wanted = set(labels)
        smallest = self.by_id
        for label in wanted:
            named = self.by_label.get(label)
            if named is None:
                return
            if len(named) <= len(smallest):
                smallest = named
        for sandbox in reversed(smallest.values()):
            if not wanted or wanted.issubset(sandbox.spec.labels):
                yield sandbox

    def _sort(self) -> None:
        ordered = sorted(self.by_id.values(), key=lambda sandbox: sandbox.created_at)
        self.by_id.clear()
        self.by_label.clear()
        self.by_group.clear()
        self.newest = 0.0
        for sandbox in ordered:
            self.add(sandbox)
        self.unsorted = False
