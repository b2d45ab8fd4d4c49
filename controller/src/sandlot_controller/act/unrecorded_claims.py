"""Ends claimed pods whose Sandbox record never appears."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract import names
from sandlot_contract.ids import SandboxId
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import reuse
from sandlot_kube.objects import Pod, Sandbox

from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from .pod_deletion import PodDeletion
from .sidecars import EndAnswer, Sidecars, SidecarUnreachable, SidecarUntrusted
from .tasks import Tasks

_log = logging.getLogger(__name__)
_LONGEST_PAUSE = 5.0  # seconds between two looks
_FIRST_ANSWERS = 2.0  # seconds for sidecars to answer before pools are planned without them
_CONCURRENT = 32
_LATE_RECORD = 60.0  # seconds for a record after the API server was away
_MESSAGE = "its Sandbox was deleted"


class UnrecordedClaims:
    """Waits for another gateway to record the claim, at the sidecar's next heartbeat, if the claiming one died.

    If none does, the Sandbox was deleted while no controller ran, and the pod is deleted, too. A reused pod is asked
    again and again: its next sandboxes may be too short for a record.
    """

    def __init__(
        self,
        world: World,
        *,
        deletion: PodDeletion,
        settings: Settings,
        tokens: InstanceTokens,
        sidecars: Sidecars,
    ) -> None:
        self._world = world
        self._deletion = deletion
        self._grace = settings.record_grace
        self._tokens = tokens
        self._sidecars = sidecars
        self._tasks = Tasks()
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._unasked: set[str] = set()
        # reused pod -> its owner without a record, and since when
        self._owners: dict[str, tuple[SandboxId | None, float]] = {}
        self._silent: dict[str, float] = {}  # reused pod -> since when its sidecar does not answer
        self.settled = asyncio.Event()  # a pool planned before this would count claimed pods as warm

    async def run(self) -> None:
        """Run until cancelled; call this after the watches are synced, as only pods from before are asked."""
        self._unasked = {
            name for name, pod in self._world.pods.items() if names.LABEL_POOL in pod.metadata.labels
        }
        pause = min(_LONGEST_PAUSE, max(0.1, self._grace / 4))
        try:
            self._look()
            await self._tasks.wait(seconds=_FIRST_ANSWERS)
            self.settled.set()
            while True:
                self._look()
                await asyncio.sleep(pause)
        finally:
            await self._tasks.close()

    def _look(self) -> None:
        world = self._world
        for name in list(self._unasked):
            pod = world.pods.get(name)
            if pod is None or pod.sidecar_host is None or world.claimed(name) or self._is_leaving(pod):
                self._unasked.discard(name)
            else:
                self._tasks.spawn(f"ask {name}", self._ask(pod, pod.sidecar_host))
        for names_of in (self._owners, self._silent):
            for name in names_of.keys() - world.unrecorded_since.keys():
                del names_of[name]
        for name, since in list(world.unrecorded_since.items()):
            pod = world.pods.get(name)
            if pod is None or self._is_leaving(pod):
                continue
            if reuse.is_reused(pod) and pod.sidecar_host is not None:
                self._tasks.spawn(f"ask {name}", self._ask_again(pod, pod.sidecar_host))
            elif self._is_overdue(since):
                self._tasks.spawn(f"end {name}", self._end(pod))

    def _is_overdue(self, since: float) -> bool:
        # While the watch of Sandboxes fails, the record may be there, or gateways cannot write it either.
        shown_at = self._world.complete_since(Sandbox) + min(self._grace, _LATE_RECORD)
        return max(since + self._grace, shown_at) <= self._world.clock()

    async def _ask(self, pod: Pod, address: str) -> None:
        name = pod.metadata.name
        try:
            async with self._slots:
                owner = await self._sidecars.owner(address, token=self._tokens.of(pod))
        except SidecarUnreachable as error:
            _log.info("could not ask whether %s is claimed, trying again: %s", name, error)
            return
        self._unasked.discard(name)
        if owner is not None and not self._world.claimed(name):
            self._world.claimed_without_record(name, owner.generation)
            self._world.changed.set()

    async def _ask_again(self, pod: Pod, address: str) -> None:
        """Check whether a reused pod still has the same owner without a record, and end it if it has had it too long."""
        name = pod.metadata.name
        try:
            async with self._slots:
                owner = await self._sidecars.owner(address, token=self._tokens.of(pod))
        except SidecarUntrusted as error:
            # It may serve its owner, and the fault may be the controller's own certificate.
            _log.info("could not ask who owns %s, trying again: %s", name, error)
            self._silent.pop(name, None)
            return
        except SidecarUnreachable as error:
            _log.info("could not ask who owns %s, trying again: %s", name, error)
            since = self._silent.setdefault(name, self._world.clock())
            if self._is_overdue(since) and self._is_unrecorded(pod):
                _log.warning("deleting %s, whose sidecar does not answer and whose owner has no record", name)
                self._deletion.delete(pod)
            return
        self._silent.pop(name, None)
        if owner is None:
            self._world.released(name)
            self._world.changed.set()
            return
        if not self._is_unrecorded(pod):
            return
        self._world.claimed_without_record(name, owner.generation)
        sandbox_id, since = self._owners.get(name, (None, 0.0))
        if name not in self._owners or sandbox_id != owner.sandbox_id:
            self._owners[name] = owner.sandbox_id, self._world.clock()
        elif self._is_overdue(since):
            await self._end(pod, only_of=owner.sandbox_id)

    async def _end(self, pod: Pod, *, only_of: SandboxId | None = None) -> None:
        name, answer = pod.metadata.name, EndAnswer.ENDED
        _log.warning("ending %s: it was claimed, but no Sandbox named it for %g s", name, self._grace)
        if pod.sidecar_host is not None:
            token = self._tokens.of(pod)
            try:
                answer = await self._sidecars.end(
                    pod.sidecar_host,
                    token=token,
                    verdict=SandboxVerdict.DELETED,
                    message=_MESSAGE,
                    only_of=only_of,
                )
            except SidecarUntrusted as error:
                _log.info("could not end %s, trying again: %s", name, error)
                return
            except SidecarUnreachable as error:
                _log.info(
                    "deleting %s without its sidecar's agreement, as it did not respond: %s", name, error
                )
                if not self._is_unrecorded(pod):
                    return
        if answer is not EndAnswer.OWNED:
            self._deletion.delete_ended(pod, answer)

    def _is_unrecorded(self, pod: Pod) -> bool:
        """Look again, since a record may have come while the sidecar was asked."""
        return pod.metadata.name in self._world.unrecorded_since and not self._is_leaving(pod)

    def _is_leaving(self, pod: Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or self._deletion.is_asked(pod)
