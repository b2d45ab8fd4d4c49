"""The sandboxes' pods as the watch shows them: new ones are asked for their state, those that are over are lost."""

from __future__ import annotations

import time

from sandlot_kube.objects import Pod

from .deaths import is_over
from .instances import Instances
from .losses import Losses
from .states import SidecarStates


class Pods:
    def __init__(
        self, instances: Instances, *, states: SidecarStates, losses: Losses, starting_for: float
    ) -> None:
        """`starting_for`: seconds that an instance may be known without its pod being in a list."""
        self._instances = instances
        self._states = states
        self._losses = losses
        self._starting_for = starting_for

    def replaced(self, pods: list[Pod]) -> None:
        names = {pod.metadata.name for pod in pods}
        now = time.monotonic()
        for seen in self._instances:
            # One that was only heard of may be newer than the list; a cold one may wait for its pod.
            fresh = seen.pod is None and (seen.origin.cold or now - seen.since < self._starting_for)
            if seen.instance.id not in names and not fresh:
                self._losses.pod_ended(seen.instance.id, None)
        for pod in pods:
            self.changed(pod)

    def changed(self, pod: Pod) -> None:
        seen = self._instances.from_pod(pod)
        if is_over(pod):
            self._losses.pod_ended(pod.metadata.name, pod)
        elif seen is not None:
            self._states.expect(seen, reachable=pod.status.pod_ip is not None)

    def deleted(self, pod: Pod) -> None:
        self._losses.pod_ended(pod.metadata.name, pod)
