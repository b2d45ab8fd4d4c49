"""Deletes pods that the scheduler has no node for, so that others are created where there is room."""

from __future__ import annotations

import asyncio
import logging

from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod

from ..world.world import World
from .node_choices import NodeChoices
from .pod_deletion import PodDeletion
from .retry import until_done
from .tasks import Tasks

_log = logging.getLogger(__name__)
_PAUSE = (
    1.0  # seconds after a pod was not deleted: the watch may be late, and a refused request is refused again
)


class PodReplacement:
    def __init__(self, world: World, *, choices: NodeChoices, deletion: PodDeletion) -> None:
        self._world = world
        self._choices = choices
        self._deletion = deletion
        self._tasks = Tasks()
        self._replaced: set[str] = set()  # until they are gone
        self._kept: set[str] = set()  # those that were not deleted

    def replace_waiting(self) -> None:
        """Replace the pods that were created while nowhere was room, and could get a node by now, or are outdated."""
        for pod in self._choices.replaceable():
            self.replace(pod)

    def replace(self, pod: Pod) -> None:
        """Begin to delete the pod unless the scheduler has placed it meanwhile; returns at once."""
        name = pod.metadata.name
        if name not in self._replaced:
            self._replaced.add(name)
            self._tasks.spawn(name, self._delete(pod), then=lambda: self._look_again(name))

    def is_replacing(self, pod: str) -> bool:
        """Return whether the pod is to be replaced, so that its end is no loss."""
        return pod in self._replaced

    def done(self, pod: str) -> bool:
        """Forget a pod that is gone; return whether it was to be replaced."""
        replaced = pod in self._replaced
        self._replaced.discard(pod)
        return replaced

    async def close(self) -> None:
        await self._tasks.close()

    async def _delete(self, pod: Pod) -> None:
        name, deleted = pod.metadata.name, False
        try:
            deleted = await until_done(lambda: self._deletion.delete_unscheduled(pod))
        except KubeError as error:
            _log.warning("could not delete %s, which has no node: %s", name, error)
        if not deleted:
            await asyncio.sleep(_PAUSE)
            self._kept.add(name)

    def _look_again(self, name: str) -> None:
        # Not before the task is over: a `replace` in the meantime would begin nothing, and nothing would follow it.
        if name in self._kept:
            self._kept.discard(name)
            self._replaced.discard(name)
            self._world.look_again(name)
