"""What sandboxes used: sums by hour, tenant and run, and the documents of a day that keep them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId

HOUR = 3600.0
_LONGEST_HOURS = 400 * 24  # a wrong clock must not make a million rows
# A document is one ConfigMap, compressed, of at most 1 MiB, and a row has up to 100 bytes: what is beyond this counts
# under the run OTHERS. Those rows are short, but sandboxes of months have many: further ones have a day each.
_ROWS_OF_TENANT = 1_000
_ROWS = 8_000
_ROWS_BY_HOUR = 10_000
OTHERS = "*"  # no name of a run
_TYPES = 16  # of GPUs by name in a row: the types are texts of callers


class Amounts(msgspec.Struct, array_like=True):
    """`sandboxes` began in the time; the others are seconds, times what was asked for (memory and disk in GiB)."""

    sandboxes: int = 0
    seconds: float = 0.0
    core_seconds: float = 0.0
    memory_gib_seconds: float = 0.0
    disk_gib_seconds: float = 0.0
    gpu_seconds: float = 0.0
    gpu_types: dict[str, float] = {}  # of `gpu_seconds`, those of creates that asked for a type, by it

    def add(self, other: Amounts, *, types: int = _TYPES) -> None:
        """Add what another has; `types`: how many types this one may have, the seconds of further ones have none."""
        for name in self.__struct_fields__[:-1]:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, seconds in other.gpu_types.items():
            if kind in self.gpu_types or len(self.gpu_types) < types:
                self.gpu_types[kind] = self.gpu_types.get(kind, 0.0) + seconds

    def rounded(self) -> Amounts:
        """Return them to the millisecond: further digits would be a third of a document."""
        return Amounts(
            self.sandboxes,
            *(round(getattr(self, name), 3) for name in self.__struct_fields__[1:-1]),
            gpu_types={kind: round(seconds, 3) for kind, seconds in self.gpu_types.items()},
        )


class Key(NamedTuple):
    """`hour` in hours of Unix time; `run` is "" for sandboxes without one."""

    hour: int
    tenant: str
    run: str


class Stay(msgspec.Struct, frozen=True, gc=False):
    """A sandbox from its claim on; `begin` in Unix seconds, memory and disk in GiB. `instance_id` and `generation`: where."""

    sandbox_id: SandboxId
    tenant: str
    run: str
    cpu: float
    memory: float
    disk: float
    gpus: int
    begin: float
    instance_id: InstanceId
    generation: int = 1
    gpu_type: str = ""  # that the create asked for

    @property
    def place(self) -> str:
        """The generation of an instance, which has one owner."""
        return f"{self.instance_id}/{self.generation}"

    def rows(
        self, end: float, *, first: int | None = None, last: int | None = None
    ) -> Iterator[tuple[Key, Amounts]]:
        """Yield what it used until `end`, by hour, in the hours from `first` to `last`."""
        end = max(end, self.begin)
        begin = max(self.begin, end - _LONGEST_HOURS * HOUR)
        begin_hour, end_hour = int(begin // HOUR), int(end // HOUR)
        from_hour = begin_hour if first is None else max(begin_hour, first)
        to_hour = end_hour if last is None else min(end_hour, last)
        for hour in range(from_hour, to_hour + 1):
            count = 1 if hour == begin_hour else 0
            seconds = min(end, (hour + 1) * HOUR) - max(begin, hour * HOUR)
            if seconds <= 0 and not count:
                continue
            yield (
                Key(hour, self.tenant, self.run),
                Amounts(
                    count,
                    seconds,
                    seconds * self.cpu,
                    seconds * self.memory,
                    seconds * self.disk,
                    seconds * self.gpus,
                    {self.gpu_type: seconds * self.gpus} if self.gpu_type and self.gpus else {},
                ),
            )


class Totals:
    """Sums by key. `bounded`: further runs count under OTHERS once a tenant, or the whole, has many rows; and further
    hours of these with the first of their day.
    """

    def __init__(self, *, bounded: bool = False) -> None:
        self.rows: dict[Key, Amounts] = {}
        self._bounded = bounded
        # In rows. A type of GPUs counts as one, and a long name as more: it takes as many bytes.
        self._size = 0
        self._of_tenant: dict[str, int] = {}

    def add(self, key: Key, amounts: Amounts) -> None:
        if self._bounded and key not in self.rows and self._is_full(key.tenant):
            key = key._replace(run=OTHERS)
            if key not in self.rows and self._size >= _ROWS_BY_HOUR:
                key = key._replace(hour=key.hour // 24 * 24)
        self._add(key, amounts, full=self._bounded and bool(amounts.gpu_types) and self._is_full(key.tenant))

    def keep(self, key: Key, amounts: Amounts) -> None:
        """Add what was within the bounds before, whatever is beside it."""
        self._add(key, amounts, full=False)

    def _add(self, key: Key, amounts: Amounts, *, full: bool) -> None:
        there = self.rows.get(key)
        if there is None:
            there = self.rows[key] = Amounts()
            self._grow(key.tenant, 1)
        before = set(there.gpu_types)
        there.add(amounts, types=len(before) if full else _TYPES)
        if len(there.gpu_types) > len(before):
            added = there.gpu_types.keys() - before
            self._grow(key.tenant, sum(1 + len(kind.encode()) // 100 for kind in added))

    def add_stay(self, stay: Stay, end: float) -> None:
        for key, amounts in stay.rows(end):
            self.add(key, amounts)

    def add_all(self, other: Totals) -> None:
        for key, amounts in other.rows.items():
            self.add(key, amounts)

    def _grow(self, tenant: str, rows: int) -> None:
        self._size += rows
        self._of_tenant[tenant] = self._of_tenant.get(tenant, 0) + rows

    def _is_full(self, tenant: str) -> bool:
        return self._size >= _ROWS or self._of_tenant.get(tenant, 0) >= _ROWS_OF_TENANT


class _Row(msgspec.Struct, array_like=True):
    hour: int
    tenant: str
    run: str
    amounts: Amounts


class Document(msgspec.Struct):
    """The sums of sandboxes whose end one source counted in one day.

    `marks`: what is in them, so that nothing is added twice. A gateway's journal marks its last batch, the records the
    minutes of ends.
    `early`: places of sandboxes that gateways added to those of records as they left, with the minute of their end. A
    record of one, which another gateway may write later, does not count.
    """

    marks: list[int] = []
    rows: list[_Row] = []
    early: dict[str, int] = {}

    @property
    def totals(self) -> Totals:
        totals = Totals(bounded=True)
        for row in self.rows:
            totals.keep(Key(row.hour, row.tenant, row.run), row.amounts)
        return totals

    def plus(self, added: Totals, *, marks: list[int], early: dict[str, int] | None = None) -> Document:
        totals = self.totals
        totals.add_all(added)
        rows = [_Row(*key, amounts.rounded()) for key, amounts in totals.rows.items()]
        return Document(marks, rows, self.early if early is None else early)


def day_of(at: float) -> int:
    """Return the day of a Unix time, in days of Unix time."""
    return int(at // (24 * HOUR))
