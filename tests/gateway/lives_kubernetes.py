"""The world of lives.py on Kubernetes: the gateways' whole backend over an API server in memory, and a controller."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from sandlot_contract import names
from sandlot_gateway.data.errors import DialError, UpstreamError
from sandlot_gateway.data.pool import Answer
from sandlot_kube import clock, ends, template, verdicts
from sandlot_kube.ends import Ended
from sandlot_kube.errors import KubeError, KubeUnreachable
from sandlot_kube.objects import Pod
from sandlot_kube.objects import Sandbox as Resource
from sandlot_kube.verdicts import Verdict

from tests.gateway import lives_pool
from tests.gateway.api_server import PODS, SANDBOXES, ApiServer, List, Watch
from tests.gateway.lives_applied import SlowSidecars
from tests.gateway.lives_faults import Faults
from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_keys import Addresses
from tests.gateway.lives_kubernetes_gateway import KubernetesGateway
from tests.gateway.lives_messages import Call, Sidecar

_LATEST = 6.0  # seconds
_END_GRACE = 5.0  # the controller's, for an end that a gateway may know better


@contextmanager
def faultless_world(
    directory: Path, *, gateways: int = 2, reuses: bool = False, listed: bool = True
) -> Iterator[KubernetesWorld]:
    """One in which no part meets what it only logs. `listed`: its gateways have read their first lists."""
    world = KubernetesWorld(directory, gateways=gateways, reuses=reuses)
    try:
        if listed:
            world.quiet()
        yield world
    finally:
        world.close()
    assert not world.faults.records


class KubernetesWorld(SlowSidecars, Addresses):
    gateway = KubernetesGateway
    settle_timeout = 0.0  # of a gateway that starts; others hear nothing of it before it has settled

    def __init__(self, directory: Path, *, gateways: int, reuses: bool = False) -> None:
        """`reuses`: with a pool that resets its pods, beside cold starts."""
        self.reuses = reuses
        self.unequal = False  # the next reset leaves something behind
        self.kept_since: dict[
            str, tuple[int, float]
        ] = {}  # pod -> last generation whose record ended, since when
        self.answered_last: Gateway | None = None  # a delete
        self.odd_since: dict[str, float] = {}
        self.had_pod: set[str] = set()
        # Sets of ids have an order of chance: an example would not go the same way twice.
        self.new_ids = patch("secrets.token_hex", self.new_id)
        self.new_ids.start()
        self.looked_up = patch("sandlot_gateway.backends.kubernetes.peers.addresses_of", self.addresses)
        self.looked_up.start()
        self.faults = Faults()
        logging.getLogger().addHandler(self.faults)
        super().__init__(directory, gateways=gateways, recycles=False)

    @cached_property
    def api(self) -> ApiServer:
        api = ApiServer(time=self.loop.time)
        if self.reuses:
            lives_pool.add(api, image=self.gateway.image)
        return api

    def new_id(self, size: int) -> str:
        self.made += 1
        return f"{self.made:0{2 * size}x}"

    def forget_deletes(self, gateway: Gateway) -> None:
        """Here `answered` has none but those that were: what came of the others is nobody's promise."""

    def close(self) -> None:
        async def end() -> None:
            # One that is cancelled may begin another.
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        for gateway in [*self.gateways, *self.dead]:
            gateway.alive = False
        self.loop.run_until_complete(end())
        self.loop.close()
        self.new_ids.stop()
        self.looked_up.stop()
        logging.getLogger().removeHandler(self.faults)

    # What is under way.

    def pass_time(self, seconds: float) -> None:
        """Let a watch that works be late by less than a gateway waits for another one's claim (`claimed_within`)."""
        if seconds >= _LATEST:
            while watches := self.backlogs():
                self.tell(watches[0])
        super().pass_time(seconds)

    def backlogs(self) -> list[Watch | List]:
        reads = [*self.api.watches, *self.api.lists]
        return [read for read in reads if read.reader.alive and read.backlog()]

    def more(self) -> bool:
        if watches := self.backlogs():
            self.tell(watches[0])
            return True
        if self.slow_ones():
            return True
        before = len(self.api.log)
        self.control()
        return len(self.api.log) != before

    def arrive(self, call: Call) -> None:
        if call.kind == "api":
            call.arrived = True
            try:
                call.result = self.api.request(call.body["method"], call.instance_id, call.body["body"])
            except KubeError as error:
                call.result = error
        elif call.instance_id not in self.sidecars or call.instance_id not in self.api.objects[PODS]:
            call.arrived = True
            call.result = DialError(call.instance_id, "nothing is there")
        else:
            super().arrive(call)

    def lose_call(self, call: Call) -> None:
        if call.kind == "api":
            self.answer(call, KubeUnreachable("no answer"))
        elif call.arrived or self.is_begun(call):
            self.answer(call, UpstreamError("no answer"))
        else:
            self.answer(call, DialError(call.instance_id, "no connection"))

    def _state(self, sidecar: Sidecar, body: dict[str, Any]) -> dict[str, Any]:
        return sidecar.state()

    def _use(self, sidecar: Sidecar, body: dict[str, Any]) -> Any:
        sidecar.used = True
        return Answer(410 if sidecar.owner is None else 200, [], b"{}")

    def _orphan(self, sidecar: Sidecar, body: dict[str, Any]) -> Any:
        owner, generation = body["sandbox_id"], sidecar.generation
        if sidecar.owner != owner:
            return Answer(409, [], b"{}")

        def over() -> None:
            if sidecar.generation == generation:
                self._end(sidecar, {"verdict": "deleted", "only_of": owner, "only_unused": True})

        if sidecar.grace is not None:
            sidecar.grace.cancel()
        sidecar.grace = self.loop.call_later(body["grace"], over)
        return Answer(200, [], b"{}")

    def _reset(self, sidecar: Sidecar, body: dict[str, Any]) -> Any:
        self.apply(sidecar)
        if sidecar.phase == "ended":
            return Answer(410, [], b'{"error":"ended"}')
        if self.unequal and sidecar.phase == "claimed" and body["generation"] == sidecar.generation:
            self.unequal = False
            self.check_unwanted(sidecar)
            sidecar.phase, sidecar.verdict = "ended", "reset_failed"
            self.speak(sidecar, "ended")
            self.has_ended(sidecar, in_order=True)
            return Answer(200, [], b'{"equal":false,"proof":"left behind"}')
        if not super()._reset(sidecar, body):
            return Answer(409, [], b'{"error":"stale_generation"}')
        return Answer(200, [], json.dumps({**sidecar.state(), "equal": True}).encode())

    # What happens to pods.

    def make_pod(self, name: str) -> None:
        """Of a cold start."""
        annotations = {names.ANNOTATION_TEMPLATE: template.encode(self.sandbox(name).spec.template)}
        self.put_pod(name, {names.LABEL_FOR: name}, annotations)

    def put_pod(self, name: str, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """With its sidecar."""
        sidecar = Sidecar(name, f"10.0.0.{len(self.sidecars) + 1}:8700")
        self.sidecars[name] = sidecar
        self.had_pod.add(name)
        ip = {"podIP": sidecar.address.partition(":")[0]} if self.tells_ips else {}
        self.api.put(
            PODS,
            name,
            {
                "metadata": {
                    "name": name,
                    "labels": {names.LABEL_NAME: names.APP, **labels},
                    "annotations": annotations,
                    "creationTimestamp": clock.text(self.api.now()),
                },
                "spec": {"nodeName": "node"},
                "status": {"phase": "Running", **ip},
            },
        )

    def has_ended(self, sidecar: Sidecar, *, in_order: bool) -> None:
        pod = self.api.objects[PODS].get(sidecar.instance_id)
        if pod is not None:
            container = names.CONTAINER_SIDECAR if in_order else names.CONTAINER_SANDBOX
            status = {"name": container, "state": {"terminated": {"exitCode": 0 if in_order else 137}}}
            self.api.put(
                PODS,
                sidecar.instance_id,
                pod | {"status": pod["status"] | {"containerStatuses": [status]}},
            )

    def delete_pod(self, name: str) -> None:
        """Its sidecar is told to terminate, and says so."""
        sidecar = self.sidecars[name]
        if sidecar.phase != "ended":
            self.check_unwanted(sidecar)
            sidecar.phase, sidecar.verdict = "ended", "evicted"
            self.speak(sidecar, "ended")
        self.api.delete(PODS, name)

    def call_end(self, sidecar: Sidecar, body: dict[str, Any]) -> None:
        """As the controller does."""
        self._end(sidecar, body)

    def unwanted(self, sidecar: Sidecar, state: dict[str, Any], verdict: str | None) -> None:
        """A 410: about what was told."""
        owner = state["sandbox_id"]
        body = {"verdict": verdict or "deleted", "only_unclaimed": owner is None, "only_of": owner}
        self._end(sidecar, {name: value for name, value in body.items() if value is not None})

    # The controller.

    def sandbox(self, name: str) -> Resource:
        return msgspec.convert(self.api.objects[SANDBOXES][name], Resource)

    def control(self) -> None:
        """All that it would do by now, by what is there."""
        for name, pod in list(self.api.objects[PODS].items()):
            if names.LABEL_FOR in pod["metadata"]["labels"] and name not in self.api.objects[SANDBOXES]:
                self.delete_pod(name)
        for name in list(self.api.objects[SANDBOXES]):
            self._control(name, self.sandbox(name))
        if self.reuses:
            lives_pool.control(self)

    def _control(self, name: str, sandbox: Resource) -> None:
        pod_name = sandbox.spec.pod_name or name
        pod = self.api.objects[PODS].get(pod_name)
        if sandbox.status.phase == "Ended":
            if pod is not None and sandbox.spec.generation is None:
                self.delete_pod(pod_name)
        elif sandbox.spec.waits:
            if self.api.now() >= (clock.seconds(sandbox.spec.waiting_until) or 0.0):
                if self._has_instance(sandbox.spec.sandbox_id):
                    self.api.delete(SANDBOXES, name)
                else:
                    # Its gateway could not renew it: that is the sandbox's end, also where it has got an instance since.
                    self.deleted[sandbox.spec.sandbox_id or ""] = self.gateways[0]
                    self._write_end(name, verdicts.of_lost_gateway())
        elif pod is None:
            if pod_name in self.had_pod or sandbox.spec.sandbox_id is not None:
                self._write_end(name, verdicts.of_missing_pod())
            else:
                self.make_pod(name)
        elif (found := verdicts.of_pod(msgspec.convert(pod, Pod))) is not None and self.is_over(
            pod_name, found
        ):
            self._write_end(name, found)

    def is_over(self, pod: str, found: Verdict) -> bool:
        since = self.odd_since.setdefault(pod, self.loop.time())
        return found.certain or self.loop.time() >= since + _END_GRACE

    def _has_instance(self, sandbox_id: str | None) -> bool:
        there = [self.sandbox(name) for name in self.api.objects[SANDBOXES]]
        return any(one.spec.sandbox_id == sandbox_id and not one.spec.waits for one in there)

    def _write_end(self, name: str, verdict: Verdict) -> None:
        ended = Ended(verdict.verdict, clock.text(self.api.now()), message=verdict.message)
        body = {"status": json.loads(msgspec.json.encode(ends.status(ended)))}
        self.api.request("PATCH", f"{SANDBOXES}/{name}/status", body)
