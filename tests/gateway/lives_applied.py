"""Sidecars of a world of lives that take time: to apply a claim, and to have an address that the watch shows."""

from __future__ import annotations

import json
from typing import Any

from sandlot_gateway.data.pool import Answer
from sandlot_gateway.sidecars import ClaimAnswer

from tests.gateway.api_server import PODS, ApiServer
from tests.gateway.lives import World
from tests.gateway.lives_messages import Call, Sidecar


class SlowSidecars(World):
    api: ApiServer
    tells_ips = True  # a pod's status does, as soon as there is one
    late_ips = False  # a pod's status has one when all is quiet

    def can_begin(self, call: Call) -> bool:
        """Whether this claim would be the one that its sidecar applies next."""
        sidecar = self.sidecars.get(call.instance_id)
        return (
            call.kind == "claim"
            and not call.arrived
            and sidecar is not None
            and call.instance_id in self.api.objects[PODS]
            and (sidecar.phase, sidecar.applies, sidecar.claim) == ("warm", None, None)
            and sidecar.generation == call.body["generation"]
            and sidecar.bound_to in (None, call.body["tenant"])
        )

    def begin_claim(self, call: Call) -> None:
        """Its sidecar has the claim, and names no owner yet. It goes on whoever waits for the answer."""
        sidecar = self.sidecars[call.instance_id]
        sidecar.claiming, sidecar.applies = True, call.body

    def is_begun(self, call: Call) -> bool:
        sidecar = self.sidecars.get(call.instance_id)
        return sidecar is not None and call.kind == "claim" and sidecar.applies is call.body

    def applying(self) -> list[Sidecar]:
        return [one for one in self.sidecars.values() if one.applies is not None]

    def apply(self, sidecar: Sidecar) -> None:
        """Come to the end of the claim that it is applying."""
        if sidecar.applies is not None:
            claim, sidecar.applies, sidecar.claiming = sidecar.applies, None, False
            self._claim(sidecar, claim)

    def unplaced(self) -> list[str]:
        """Pods whose address the watch does not show."""
        return [name for name, pod in self.api.objects[PODS].items() if "podIP" not in pod["status"]]

    def place(self, name: str) -> None:
        """The kubelet tells the pod's address."""
        pod = self.api.objects[PODS][name]
        ip = self.sidecars[name].address.partition(":")[0]
        self.api.put(PODS, name, pod | {"status": pod["status"] | {"podIP": ip}})

    def slow_ones(self) -> bool:
        """One comes to its end. False: there is none."""
        if applying := self.applying():
            self.apply(applying[0])
            return True
        if self.late_ips and (unplaced := self.unplaced()):
            self.place(unplaced[0])
            return True
        return False

    def _claim(self, sidecar: Sidecar, body: dict[str, Any]) -> ClaimAnswer:
        self.apply(sidecar)
        return super()._claim(sidecar, body)

    def _end(self, sidecar: Sidecar, body: dict[str, Any]) -> Any:
        self.apply(sidecar)
        told = super()._end(sidecar, body)
        if told != "owned":
            return told
        return Answer(409, [], json.dumps({"error": "claimed", "sandbox_id": sidecar.owner}).encode())
