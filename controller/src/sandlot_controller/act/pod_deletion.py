"""Deletes each pod once, after its sidecar; pods whose Sandboxes end within one second go into one request."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract import names
from sandlot_contract.ids import is_instance_id
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod
from sandlot_kube.waiting import wait_set

from ..plan.pod import STOP_SECONDS
from ..world.world import World
from .api import Api
from .retry import until_done
from .sidecars import EndAnswer
from .tasks import Tasks

_log = logging.getLogger(__name__)
_BATCH_SECONDS = 1.0  # the code in those pods has ended already, so nothing waits for their deletion
_BATCH_SIZE = 100  # names in one request's URL


class PodDeletion:
    """Deletes pods in the background: methods return at once and may be called repeatedly."""

    def __init__(self, world: World, api: Api, *, longest_stop: float = STOP_SECONDS) -> None:
        """`longest_stop`: seconds that the pod of a start command that is being stopped is kept at most."""
        self._world = world
        self._api = api
        self._longest_stop = longest_stop
        self._stops: dict[str, asyncio.Event] = {}  # pod uid -> set once its sidecar has ended
        self._tasks = Tasks()
        self._asked: dict[str, bool] = {}  # pod uid -> whether forced
        self._batch: list[Pod] = []
        self._timer: asyncio.TimerHandle | None = None
        world.pod_listeners.append(self._on_pod)

    def is_asked(self, pod: Pod) -> bool:
        """Return whether the pod's deletion has been requested."""
        return pod.metadata.uid in self._asked

    def delete(self, pod: Pod, *, force: bool = False) -> None:
        """Delete a pod. `force`: its node will never confirm its end."""
        if self._is_new(pod, force=force):
            self._begin(pod, force=force)

    def delete_ended(self, pod: Pod, answer: EndAnswer) -> None:
        """Delete a pod whose sidecar gave this answer to an end, while its start command has its grace after that."""
        if answer is not EndAnswer.STOPPING:
            self.delete(pod)
        elif self._is_new(pod, force=False):
            ended = self._stops[pod.metadata.uid] = asyncio.Event()
            if sidecar_is_over(self._world.pods.get(pod.metadata.name, pod)):
                ended.set()
            self._tasks.spawn(f"stop {pod.metadata.uid}", self._delete_after_stop(pod, ended))

    def delete_in_batch(self, pod: Pod) -> None:
        """Delete a pod together with others, within a second."""
        if not self._is_new(pod, force=False):
            return
        # A batch names no uids; but an instance id is never used for another pod.
        if not is_instance_id(pod.metadata.name):
            self._begin(pod, force=False)
            return
        self._batch.append(pod)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_SECONDS, self._begin_batch)

    async def delete_unscheduled(self, pod: Pod) -> bool:
        """Delete a pod unless it has changed, by the scheduler say; return whether it did. Raises KubeError."""
        deleted = await self._api.delete_pod(pod, unchanged=True)
        if (
            deleted and pod.metadata.name in self._world.pods
        ):  # otherwise the watch was faster, and will not report its end
            self._asked[pod.metadata.uid] = False
        return deleted

    async def close(self) -> None:
        """Stop; the next controller deletes what was not requested yet."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        uid = pod.metadata.uid
        if gone:
            self._asked.pop(uid, None)
        if (gone or sidecar_is_over(pod)) and uid in self._stops:
            self._stops[uid].set()

    def _is_new(self, pod: Pod, *, force: bool) -> bool:
        before = self._asked.get(pod.metadata.uid)
        if before is not None and before >= force:
            return False
        self._asked[pod.metadata.uid] = force
        return True

    def _begin(self, pod: Pod, *, force: bool) -> None:
        self._tasks.spawn(f"delete {pod.metadata.uid} {force}", self._delete(pod, force=force))

    def _begin_batch(self) -> None:
        self._timer = None
        for begin in range(0, len(self._batch), _BATCH_SIZE):
            some = self._batch[begin : begin + _BATCH_SIZE]
            self._tasks.spawn(f"delete {some[0].metadata.uid} and others", self._delete_all(some))
        self._batch = []

    async def _delete_all(self, pods: list[Pod]) -> None:
        if len(pods) > 1:
            try:
                await until_done(lambda: self._api.delete_pods([pod.metadata.name for pod in pods]))
                return
            except KubeError as error:
                _log.info("deleting %d pods one by one: %s", len(pods), error)
        for pod in pods:
            await self._delete(pod, force=False)

    async def _delete_after_stop(self, pod: Pod, ended: asyncio.Event) -> None:
        try:
            await wait_set(ended, seconds=self._longest_stop)
        finally:
            del self._stops[pod.metadata.uid]
        if self._asked.get(pod.metadata.uid) is False:  # it is neither gone nor forced meanwhile
            await self._delete(pod, force=False)

    async def _delete(self, pod: Pod, *, force: bool) -> None:
        try:
            await until_done(lambda: self._api.delete_pod(pod, force=force))
        except KubeError:
            self._asked.pop(pod.metadata.uid, None)  # the next look at it tries again
            raise


def sidecar_is_over(pod: Pod) -> bool:
    """Return whether the node has told that the pod's sidecar has exited."""
    sidecar = pod.container(names.CONTAINER_SIDECAR)
    return pod.status.terminal or (sidecar is not None and sidecar.state.terminated is not None)
