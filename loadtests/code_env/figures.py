"""Summarises the rollouts of a phase: what they waited, which were masked, and whether that was right."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from loadtests.code_env.losses import Loss
from loadtests.code_env.messages import Record


def of_rollouts(records: Sequence[Record], losses: Collection[Loss]) -> dict[str, Any]:
    """Return seconds as means over all rollouts, also masked ones, and counts of what must not happen.

    `share` of their time they waited for their sandbox: all that the model did not take. `kills` of sandboxes there were;
    rollouts that are `killed` lost their own one before their tests had ended. `unmasked` of these were scored although the sandbox was gone before their tests began,
    `unexplained` were masked with a whole one, `misjudged` got another reward than the program deserves.
    """
    at = {loss.sandbox: loss for loss in losses}
    hits = [(one, at[one.sandbox]) for one in records if one.sandbox in at]
    # A kill that had begun by then, and had ended or did harm.
    killed = [
        one for one, loss in hits if loss.ended < (one.tested or 0) or (one.masked and loss.begun < one.ended)
    ]
    early = [one for one, loss in hits if one.testing is None or loss.ended < one.testing]
    hit = {one.number for one in killed}
    wall, waited = sum(one.wall for one in records), sum(one.waited for one in records)
    creates = [one.created - one.began for one in records if one.created is not None]
    late = [max(0.0, one.created - one.inferred) for one in records if one.created is not None]
    return {
        "count": len(records),
        "scored": sum(not one.masked for one in records),
        "masked": sum(one.masked for one in records),
        "kills": len(losses),
        "killed": len(killed),
        "unmasked": sum(not one.masked for one in early),
        "unexplained": sum(one.masked and one.number not in hit for one in records),
        "misjudged": sum(one.reward is not None and one.reward != one.expected for one in records),
        "seconds": _mean(wall, len(records)),
        "waited": _mean(waited, len(records)),
        "share": round(waited / wall, 6) if wall else 0.0,
        "create": _mean(sum(creates), len(creates)),
        "create_not_hidden": _mean(sum(late), len(late)),
        "errors": sorted({one.error[:200] for one in records if one.masked}),
    }


def _mean(total: float, count: int) -> float:
    return round(total / count, 6) if count else 0.0
