"""Adds up what one request asks for, so that neither its time nor its memory grows with what others used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sandlot_gateway.core.costs import Cost, Prices
from sandlot_gateway.core.usage import Amounts, Document, Key, Stay
from sandlot_gateway.core.usage_source import Source

Group = TypeVar("Group", bound=Hashable)


class TooManyGroups(Exception):
    pass


@dataclass(slots=True)
class Used:
    """What a group used, and what that costs: None without prices."""

    amounts: Amounts = field(default_factory=Amounts)
    cost: Cost | None = None


class Sums(Generic[Group]):
    """Sums by `group` of the hours `first` to `last`, of one tenant or all (None); `most` groups. Runs in any thread."""

    def __init__(
        self,
        *,
        first: int,
        last: int,
        tenant: str | None,
        group: Callable[[Key], Group],
        most: int,
        prices: Prices | None = None,
    ) -> None:
        self.groups: dict[Group, Used] = {}
        self.marks: dict[Source, list[int]] = {}  # of the documents
        self.early: set[str] = set()  # of the documents, too
        self._first, self._last = first, last
        self._tenant = tenant
        self._group = group
        self._most = most
        self._prices = prices

    def add_document(self, source: Source, document: Document) -> None:
        """Add its rows, and note what is in them. Raises TooManyGroups."""
        self.marks[source] = document.marks
        self.early.update(document.early)
        for row in document.rows:
            if self._first <= row.hour <= self._last:
                self._add(Key(row.hour, row.tenant, row.run), row.amounts)

    def add_stays(self, stays: Iterable[tuple[Stay, float]]) -> None:
        """Add sandboxes until their end each. Raises TooManyGroups."""
        for stay, end in stays:
            if self._tenant in (None, stay.tenant):
                for key, amounts in stay.rows(end, first=self._first, last=self._last):
                    self._add(key, amounts)

    def _add(self, key: Key, amounts: Amounts) -> None:
        if self._tenant not in (None, key.tenant):
            return
        group = self._group(key)
        there = self.groups.get(group)
        if there is None:
            if len(self.groups) >= self._most:
                raise TooManyGroups
            there = self.groups[group] = Used(cost=Cost() if self._prices is not None else None)
        there.amounts.add(amounts)
        if self._prices is not None and there.cost is not None:
            there.cost.add(self._prices.cost(amounts))
