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
        for entry in self._instances:
            # One that was only heard of may be newer than the list; a cold one may wait for its pod.
            fresh = not entry.pod_seen and (entry.cold or now - entry.began < self._starting_for)
            if entry.instance.id not in names and not fresh:
                self._losses.pod_ended(entry, None)
        for pod in pods:
            self.changed(pod)

    def changed(self, pod: Pod) -> None:
        entry = self._instances.from_pod(pod)
        if entry is None:
            return
        if is_over(pod):
            self._losses.pod_ended(entry, pod)
        else:
            self._states.expect(entry, reachable=pod.status.pod_ip is not None)

    def deleted(self, pod: Pod) -> None:
        entry = self._instances.get(pod.metadata.name)
        if entry is not None:
            self._losses.pod_ended(entry, pod)
