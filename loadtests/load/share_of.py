"""The rate of an open loop that is a share of what an earlier closed loop reached, in tasks per second."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtests.load.profile import Phase
from loadtests.load.summary import Span


def paced(phase: Phase, *, phases: Sequence[Phase], spans: Sequence[Span]) -> Phase:
    """Return the phase with its rate in tasks per second; `spans` are those of the phases before it."""
    if phase.open is None or phase.open.of is None:
        return phase
    floor = next(one for one in phases if one.name == phase.open.of)
    ran = next(span for span in spans if span.name == phase.open.of)
    assert floor.closed is not None
    assert floor.closed.tasks is not None
    reached = floor.closed.tasks / (ran.ended - ran.begun)
    return msgspec.structs.replace(
        phase, open=msgspec.structs.replace(phase.open, rate=phase.open.rate * reached, of=None)
    )
