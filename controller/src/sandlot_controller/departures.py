"""Takes the pods of ended Sandboxes away: those that end within one moment by one request."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract.ids import is_instance_id
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod

from sandlot_controller.api import Api
from sandlot_controller.retry import until_done
from sandlot_controller.tasks import Tasks

_log = logging.getLogger(__name__)
_MOMENT = 1.0  # seconds; its sidecar has ended the code in there, so that nobody waits for the pod's end
_AT_MOST = 100  # names in one request's address


class Departures:
    """`take` and `gone` return at once, and may be called as often as one likes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._tasks = Tasks()
        self._taken: dict[str, bool] = {}  # uids of pods on their way out → without their node's word
        self._gathered: list[Pod] = []
        self._timer: asyncio.TimerHandle | None = None

    def take(self, pod: Pod, *, now: bool) -> None:
        """`now`: its node will never say that it has ended."""
        uid = pod.metadata.uid
        if uid in self._taken and self._taken[uid] >= now:
            return
        self._taken[uid] = now
        # A request for several names no pod by its uid; of an id of ours nobody ever makes another one.
        if now or not is_instance_id(pod.metadata.name):
            self._tasks.spawn(f"delete {uid} {now}", self._delete(pod, now=now))
            return
        self._gathered.append(pod)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_MOMENT, self._go)

    def gone(self, pod: Pod) -> None:
        self._taken.pop(pod.metadata.uid, None)

    async def close(self) -> None:
        """Those that were not asked for yet are found by the next controller."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    def _go(self) -> None:
        self._timer = None
        for begin in range(0, len(self._gathered), _AT_MOST):
            some = self._gathered[begin : begin + _AT_MOST]
            self._tasks.spawn(f"delete {some[0].metadata.uid} and others", self._delete_all(some))
        self._gathered = []

    async def _delete_all(self, pods: list[Pod]) -> None:
        if len(pods) > 1:
            try:
                await until_done(lambda: self._api.delete_pods([pod.metadata.name for pod in pods]))
                return
            except KubeError as error:
                _log.info("%d pods go one by one: %s", len(pods), error)
        for pod in pods:
            await self._delete(pod, now=False)

    async def _delete(self, pod: Pod, *, now: bool) -> None:
        try:
            await until_done(lambda: self._api.delete_pod(pod, now=now))
        except KubeError:
            self.gone(pod)  # the next event of it tries again
            raise
