"""Why the scheduler has no node for pods, by their templates: what their creates wait for."""

from __future__ import annotations

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_kube.objects import Pod


class Unplaced:
    def __init__(self) -> None:
        # By template, since lists of sandboxes ask for each that waits.
        self._whys: dict[str, dict[InstanceId, str]] = {}

    def note(self, template: Template, pod: Pod) -> None:
        """Note what the scheduler says of a pod, or that it has a node."""
        scheduled = pod.condition("PodScheduled")
        if pod.spec.node_name is None and scheduled is not None and scheduled.status == "False":
            why = scheduled.message or scheduled.reason or "the scheduler gives no reason"
            self._whys.setdefault(template.key, {})[pod.instance_id] = why
        else:
            self.forget(template, pod.instance_id)

    def forget(self, template: Template, instance_id: InstanceId) -> None:
        """Note that the instance has no pod any more."""
        whys = self._whys.get(template.key)
        if whys is not None and whys.pop(instance_id, None) is not None and not whys:
            del self._whys[template.key]

    def why(self, template: Template) -> str | None:
        """Return what the scheduler says of one such pod, or None if none waits for a node."""
        whys = self._whys.get(template.key)
        return next(iter(whys.values())) if whys else None
