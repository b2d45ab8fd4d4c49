"""Follows the watch of the sandboxes' pods: polls the sidecars of new pods and reports ended pods as lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import verdicts
from sandlot_kube.ends import Ended
from sandlot_kube.objects import Pod

from ...core.slot import Loss, Phase
from ...data.pool import HttpPool
from .instances import Instances, SeenInstance
from .recorded import Recorded
from .reporter import Reporter
from .states import SidecarStates
from .timers import KeyedTimers


class Pods:
    """Reports an ended pod at once, or after the controller had time to record the reason."""

    def __init__(
        self,
        instances: Instances,
        *,
        recorded: Recorded,
        states: SidecarStates,
        pool: HttpPool,
        reporter: Reporter,
        ended: Callable[[SeenInstance, SandboxId], None],
        lost: Callable[[InstanceId], None],
        verdict_wait: float,
    ) -> None:
        """Call `ended` with a reused pod that is over without a record of its owner's end, `lost` with each pod that is
        gone. `verdict_wait`: seconds for the controller to record why a pod ended.
        """
        self._instances = instances
        self._recorded = recorded
        self._states = states
        self._pool = pool
        self._reporter = reporter
        self._ended = ended
        self._lost = lost
        self._verdicts = KeyedTimers(after=verdict_wait)
        self._listed: list[InstanceId] = []  # those known when the last list began

    def listing(self) -> None:
        """Note whose pods a list that begins should show: an instance that reports meanwhile may be newer than it."""
        self._listed = [seen.instance.id for seen in self._instances]

    def replaced(self, pods: list[Pod]) -> None:
        there = {pod.instance_id for pod in pods}
        for instance_id in [one for one in self._listed if one not in there]:
            seen = self._instances.get(instance_id)
            # A cold start may wait for its pod.
            if seen is not None and (seen.pod is not None or not seen.origin.cold):
                self._over(instance_id, None)
        for pod in pods:
            self.changed(pod)

    def changed(self, pod: Pod) -> None:
        before = self._instances.get(pod.instance_id)
        kept = before is not None and before.instance.keeps_image
        seen = self._instances.from_pod(pod)
        if pod.metadata.deletion_timestamp is not None and self._may_come_again(pod):
            self._instances.without_pod(pod.instance_id)
        elif is_over(pod):
            self._over(pod.instance_id, pod)
        elif seen is not None:
            self._states.expect(seen, reachable=pod.status.pod_ip is not None)
            if (
                kept
                and not seen.instance.keeps_image
                and self._reporter.events.phase(seen.instance.id) is not None
            ):
                # It reported before its pod was seen: a further report offers it to creates of all images.
                self._states.ask(seen.instance)

    def deleted(self, pod: Pod) -> None:
        if self._may_come_again(pod):
            self._instances.without_pod(pod.instance_id)
        else:
            self._over(pod.instance_id, pod)

    def lose(self, instance_id: InstanceId, *, pod: Pod | None = None, ended: Ended | None = None) -> None:
        """Report the instance as lost: for the reason in its Sandbox (`ended`), else by the pod's last status."""
        self._verdicts.cancel(instance_id)
        self._states.forget(instance_id)
        if ended is not None:
            loss = Loss(ended.verdict, ended.message or ended.verdict, ended.exit_code)
        else:
            started = self._reporter.events.phase(instance_id) not in (None, Phase.GONE)
            loss = death_of(pod, started=started)
        self._reporter.events.instance_lost(instance_id, loss)
        self._instances.remove(instance_id)
        self._lost(instance_id)
        self._let_go(instance_id, loss)

    def close(self) -> None:
        self._verdicts.close()

    def _may_come_again(self, pod: Pod) -> bool:
        """Return whether it is a cold start's pod without a node, which the controller may create again for another."""
        seen = self._instances.get(pod.instance_id)
        return (
            seen is not None
            and seen.origin.cold is True
            and pod.spec.node_name is None
            and self._reporter.events.phase(pod.instance_id) is None
        )

    def _over(self, instance_id: InstanceId, pod: Pod | None) -> None:
        seen = self._instances.get(instance_id)
        if seen is None:
            self._let_go(instance_id, death_of(pod, started=True))
            return
        owner = self._reporter.events.owner(instance_id)
        unowned = owner is None and not seen.origin.cold
        if not seen.reused:
            has_end = self._recorded.has_end(instance_id)
        else:
            has_end = owner is not None and self._recorded.sandbox_has_end(owner)
        if unowned or has_end:
            self.lose(instance_id, pod=pod)  # no better reason will come
        elif instance_id not in self._verdicts:
            self._verdicts.start(instance_id, partial(self.lose, instance_id, pod=pod))
            if seen.reused and owner is not None:
                self._ended(seen, owner)

    def _let_go(self, instance_id: InstanceId, loss: Loss) -> None:
        if address := self._instances.take_address(instance_id):
            # A lost node never closes its connections; on a live one the last answer may still be in flight.
            (self._pool.cut if loss.verdict == SandboxVerdict.NODE_LOST else self._pool.forget)(address)


def is_over(pod: Pod) -> bool:
    """Return whether the pod or one of its containers has ended; none of them restarts."""
    return (
        pod.metadata.deletion_timestamp is not None
        or pod.status.terminal
        or any(container.state.terminated for container in pod.status.container_statuses)
    )


def death_of(pod: Pod | None, *, started: bool) -> Loss:
    """Return the reason by the pod's last status, or for a missing pod (None), when the controller records none."""
    found = verdicts.of_missing_pod() if pod is None else verdicts.of_deleted_pod(pod)
    lost = found.verdict in (SandboxVerdict.SANDBOX_LOST, SandboxVerdict.SIDECAR_LOST)
    return Loss(SandboxVerdict.START_FAILED if lost and not started else found.verdict, found.message)
