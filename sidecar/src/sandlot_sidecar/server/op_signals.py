"""The signals to one op: each is sent once per id, and kept until the op has a runner."""

from __future__ import annotations

from ..core.errors import busy
from ..core.op import State
from .dedupe_cache import DedupeCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.op import Op
    from .runners import Runner

MOST_UNSENT = 64  # signals the runner has not read; code can keep it busy


class OpSignals:
    """Made for an op with its first signal."""

    __slots__ = ("_early", "_known", "_op")

    def __init__(self, op: Op) -> None:
        self._op = op
        self._known: DedupeCache | None = None
        self._early: tuple[tuple[int, bool], ...] = ()  # number and tree of signals before it had a runner

    def signal(self, runner: Runner | None, number: int, *, tree: bool, dedupe: str | None) -> None:
        """Send a signal, or keep it for the runner to come. Raises 503 if too many are unread."""
        known = self._known
        if dedupe is not None and known is not None and known.get(dedupe) is not None:
            known.put(dedupe, 1)
            return
        unread = len(self._early) if runner is None else runner.unsent
        if unread >= MOST_UNSENT:
            raise busy(f"{unread} signals to this op are pending: try again after Retry-After")
        if dedupe is not None:
            known = self._known = known or DedupeCache()
            known.put(dedupe, 1)
        if runner is not None:
            self._send(runner, number, tree=tree)
        elif self._op.state is State.QUEUED:
            self._early += ((number, tree),)

    def send_early(self, runner: Runner) -> None:
        """Send what was kept; the caller has sent the command."""
        early, self._early = self._early, ()
        for number, tree in early:
            self._send(runner, number, tree=tree)

    def forget_early(self) -> None:
        self._early = ()

    def _send(self, runner: Runner, number: int, *, tree: bool) -> None:
        self._op.sent_signal = number
        runner.send({"signal": number, "tree": tree})
