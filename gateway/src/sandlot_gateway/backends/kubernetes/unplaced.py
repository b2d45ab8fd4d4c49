"""Why the scheduler has no node for pods, by their templates: what their creates wait for."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sandlot_contract.ids import InstanceId
from sandlot_contract.names import LABEL_POOL
from sandlot_contract.template import Template
from sandlot_kube.objects import Pod


class _Why(NamedTuple):
    pool: str | None
    text: str


class Unplaced:
    def __init__(self) -> None:
        # By template, since lists of sandboxes ask for each that waits.
        self._whys: dict[str, dict[InstanceId, _Why]] = {}

    def note(self, template: Template, pod: Pod) -> None:
        """Note what the scheduler says of a pod, or that it has a node."""
        scheduled = pod.condition("PodScheduled")
        if pod.spec.node_name is None and scheduled is not None and scheduled.status == "False":
            why = scheduled.message or scheduled.reason or "the scheduler gives no reason"
            of_template = self._whys.setdefault(template.key, {})
            of_template[pod.instance_id] = _Why(pod.metadata.labels.get(LABEL_POOL), why)
        else:
            self.forget(template, pod.instance_id)

    def forget(self, template: Template, instance_id: InstanceId) -> None:
        """Note that the instance has no pod any more."""
        whys = self._whys.get(template.key)
        if whys is not None and whys.pop(instance_id, None) is not None and not whys:
            del self._whys[template.key]

    def of(self, template: Template, instance_id: InstanceId) -> str | None:
        """Return what the scheduler says of this pod, or None if it does not wait for a node."""
        why = self._whys.get(template.key, {}).get(instance_id)
        return why.text if why is not None else None

    def of_pools(self, template: Template, pools: Collection[str]) -> str | None:
        """Return what the scheduler says of one such pod of these pools, or None if none waits for a node."""
        whys = self._whys.get(template.key, {}).values()
        return next((why.text for why in whys if why.pool in pools), None)
