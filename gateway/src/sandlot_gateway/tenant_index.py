"""Lists one tenant's sandboxes by pages, from an index by age, label and group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypedDict

from sandlot_contract.ids import SandboxId

from sandlot_gateway.sandboxes import Sandbox


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; `total` counts all matches."""

    sandboxes: list[Sandbox]
    total: int
    has_next: bool


class Conditions(TypedDict, total=False):
    """Which sandboxes a listing has, beside those of their labels; None: any."""

    run: str | None
    group: str | None
    image: str | None  # a part of its name
    status: str | None
    verdict: str | None
    active: bool | None  # True only live ones, False only ended


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

    def page(
        self,
        page: int,
        per_page: int,
        *,
        labels: Iterable[str],
        run: str | None = None,
        group: str | None = None,
        image: str | None = None,
        status: str | None = None,
        verdict: str | None = None,
        active: bool | None = None,
    ) -> Page:
        """Return a page, 1 for the first, of those that meet all Conditions, newest first."""
        first = (page - 1) * per_page
        found: list[Sandbox] = []
        total = 0
        for sandbox in self._newest_first(labels):
            if run is not None and sandbox.spec.run != run:
                continue
            if group is not None and (sandbox.spec.group is None or sandbox.spec.group.id != group):
                continue
            if image is not None and image not in sandbox.spec.image:
                continue
            if status is not None and sandbox.status != status:
                continue
            if verdict is not None and sandbox.verdict != verdict:
                continue
            if active is not None and sandbox.live is not active:
                continue
            if first <= total < first + per_page:
                found.append(sandbox)
            total += 1
        return Page(found, total, total > first + per_page)

    def _newest_first(self, labels: Iterable[str]) -> Iterator[Sandbox]:
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
