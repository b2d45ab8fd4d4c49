"""Takes an instance for lost: at once, or when the controller has had its time to say why its pod ended."""

from __future__ import annotations

from functools import partial

from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube.ends import Ended
from sandlot_kube.objects import Pod

from ...data.pool import HttpPool
from .deaths import death_of
from .instances import Entry, Instances
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

    def pod_ended(self, entry: Entry, pod: Pod | None) -> None:
        """Lost at once where nobody has more to say; else the controller's verdict is waited for."""
        instance_id = entry.instance.id
        known = self._records.of_pod(instance_id)
        ended = known.ended if known is not None else None
        if ended is not None or entry.leaving or (entry.claim is None and not entry.cold):
            self.lose(instance_id, pod=pod, ended=ended)
        elif instance_id not in self._verdicts:
            self._verdicts.start(instance_id, partial(self.lose, instance_id, pod=pod))

    def lose(self, instance_id: str, *, pod: Pod | None = None, ended: Ended | None = None) -> None:
        """It is over: by the Sandbox's word (`ended`) if there is one, else by what the pod looked like at last."""
        self._verdicts.cancel(instance_id)
        self._states.forget(instance_id)
        entry = self._instances.get(instance_id)
        exit_code = None
        if ended is not None:
            verdict, message, exit_code = ended.verdict, ended.message or ended.verdict, ended.exit_code
            if entry is not None:
                entry.claim = None  # nothing is left to be written about it
        else:
            verdict, message = death_of(pod, started=entry is not None and entry.heard)
        self._reporter.instance_lost(instance_id, verdict=verdict, message=message, exit_code=exit_code)
        self._instances.remove(instance_id)
        if entry is not None:
            # From a lost node no end of a connection ever comes; elsewhere the last answer may still be on its way.
            (self._pool.cut if verdict == SandboxVerdict.NODE_LOST else self._pool.forget)(
                entry.instance.address
            )

    def close(self) -> None:
        self._verdicts.close()
