"""Begins to serve after a start, a reset or a claim that failed: the owner if there is one, else the next claim."""

from __future__ import annotations

import time

from ..core.instance import InstanceState, Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ops import Ops
    from .sandbox import Sandbox
    from .use import Use
    from .webhooks import Webhooks


class Serving:
    """Starts the timers and the work of either state. `in_pod`: the sandbox has a pod of its own."""

    def __init__(
        self, life: InstanceState, *, in_pod: bool, sandbox: Sandbox, ops: Ops, use: Use, webhooks: Webhooks
    ) -> None:
        self._life = life
        self._in_pod = in_pod
        self._sandbox = sandbox
        self._ops = ops
        self._use = use
        self._webhooks = webhooks
        self.ready_at: float | None = None

    def begin(self) -> None:
        """Serve the owner if there is one, else the warm pool; send `ready`."""
        if self._life.phase is Phase.CLAIMED:
            self._use.begin(self._life.record)
            self._use.run_start_command(self._life.record)
        else:
            self.await_claim()
        self.ready_at = time.time()
        self._webhooks.ready()

    def await_claim(self) -> None:
        """Use little until a claim comes, and prepare what it needs."""
        # A pod costs many times what a runner does, and its owner's first command would have to wait for a new runner.
        if not self._in_pod:
            # Without control groups, a runner has the limits of the owner for whom it was forked.
            has_groups = self._sandbox.setup.get("cgroup") != "none"
            (self._ops.pool.rest_later if has_groups else self._ops.pool.rest)()
        self._use.ahead.begin(self._life.record)
