"""Takes an instance for lost: at once, or when the controller has had its time to say why its pod ended."""

from __future__ import annotations

from functools import partial

from sandlot_kube.ends import Ended
from sandlot_kube.objects import Pod

from ...core.slots import Phase
from ...data.pool import HttpPool
from .deaths import death_of
from .instances import Instances
from .records import Records
from .reporter import Reporter
from .states import SidecarStates
from .timers import KeyedTimers


class Losses:
    def __init__(
        self,
        instances: Instances,
        *,
        records: Records,
        states: SidecarStates,
        pool: HttpPool,
        reporter: Reporter,
        verdict_wait: float,
    ) -> None:
        """`verdict_wait`: seconds for the controller to say why a pod ended."""
        self._instances = instances
        self._records = records
        self._states = states
        self._pool = pool
        self._reporter = reporter
        self._verdicts = KeyedTimers(after=verdict_wait)

    def pod_ended(self, instance_id: str, pod: Pod | None) -> None:
        """Lost at once where nobody has more to say; else the controller's verdict is waited for."""
        seen = self._instances.get(instance_id)
        if seen is None:
            self._let_go(instance_id, death_of(pod, started=True)[0])
            return
        known = self._records.of_pod(instance_id)
        ended = known.ended if known is not None else None
        if ended is not None or (self._reporter.owner(instance_id) is None and not seen.origin.cold):
            self.lose(instance_id, pod=pod, ended=ended)
        elif instance_id not in self._verdicts:
            self._verdicts.start(instance_id, partial(self.lose, instance_id, pod=pod))

    def lose(self, instance_id: str, *, pod: Pod | None = None, ended: Ended | None = None) -> None:
        """It is over: by the Sandbox's word (`ended`) if there is one, else by what the pod looked like at last."""
        self._verdicts.cancel(instance_id)
        self._states.forget(instance_id)
        exit_code = None
        if ended is not None:
            verdict, message, exit_code = ended.verdict, ended.message or ended.verdict, ended.exit_code
        else:
            started = self._reporter.phase(instance_id) not in (None, Phase.GONE)
            verdict, message = death_of(pod, started=started)
        self._reporter.instance_lost(instance_id, verdict=verdict, message=message, exit_code=exit_code)
        self._instances.remove(instance_id)
        self._let_go(instance_id, verdict)

    def _let_go(self, instance_id: str, verdict: str) -> None:
        if address := self._instances.take_address(instance_id):
            # From a lost node no end of a connection ever comes; elsewhere the last answer may still be on its way.
            (self._pool.cut if verdict == "node_lost" else self._pool.forget)(address)

    def close(self) -> None:
        self._verdicts.close()
