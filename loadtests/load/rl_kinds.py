"""The kinds of phases for what trainers do: groups, runs that share turns, forks. `run_kinds.py` runs them."""

from __future__ import annotations

from loadtests.load.fields import Count, Strict


class Groups(Strict, frozen=True):
    """Groups of `size` sandboxes from the pool, `rounds` of each caller; callers begin each round together.

    With `compare` a round also has a create of one sandbox, and `size` creates at once, each with a full pool before.
    """

    size: Count
    rounds: Count
    callers: Count = 1
    compare: bool = False

    def __post_init__(self) -> None:
        if self.compare and self.callers > 1:
            raise ValueError(
                f"`compare` needs one caller, since others would take its pool, not {self.callers}"
            )


class FairShare(Strict, frozen=True):
    """Two runs, `heavy` with this weight and `light` with 1, with `callers` each that create and delete without a pool.

    It ends after so many `turns` of both. Only turns while both had creates that waited are compared.
    """

    weight: Count
    callers: Count
    turns: Count


class Forks(Strict, frozen=True):
    """`rounds` of `count` creates at once and a fork into `count`, with a full pool before each.

    The forked sandbox has a file of `mib` MiB.
    """

    count: Count
    mib: Count
    rounds: Count
