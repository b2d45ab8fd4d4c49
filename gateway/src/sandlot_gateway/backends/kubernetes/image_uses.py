"""Which slot uses which image: told to node agents before a claim, and taken back once the slot has another image."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from sandlot_contract.ids import InstanceId
from sandlot_kube.registry_credentials import Auth

from ...core.instances import Instance, Laid
from ...data.pool import HttpPool, PoolError
from ...tasks import Tasks
from .node_agents import AgentError, AgentUnreachable, NodeAgents, Prepared

_log = logging.getLogger(__name__)

_CALL = 3.0  # seconds for a sidecar's state
# Seconds after a claim until the use of the earlier image is taken back: the call would take CPU time of the node from
# the owner's first command.
_AFTER_CLAIM = 1.0


class ImageUses:
    """Each `use` is followed by `laid` or `unlaid` of its instance.

    `unlaid_for`: seconds after which a use is taken back whose claim has not laid the image. Longer than a claim takes:
    another gateway may lay the same image meanwhile, which the sidecar's state shows then.
    """

    def __init__(
        self,
        agents: NodeAgents,
        *,
        pool: HttpPool,
        unlaid_for: float,
        after_claim: float = _AFTER_CLAIM,
    ) -> None:
        self._agents = agents
        self._pool = pool
        self._unlaid_for = unlaid_for
        self._after_claim = after_claim
        self._closing = asyncio.Event()
        self._since: dict[InstanceId, float | None] = {}  # of the use that was begun last
        self._later: dict[tuple[InstanceId, str], asyncio.Task[None]] = {}
        self._calls = Tasks()

    async def close(self, *, timeout: float) -> None:
        """Finish the calls in progress, `timeout` seconds at most. A use of an image that was not laid stays until its pod ends."""
        self._closing.set()
        later = list(self._later.values())
        for task in later:
            task.cancel()
        await asyncio.gather(*later, return_exceptions=True)
        if cut := await self._calls.close(timeout=timeout):
            _log.warning("gave up %d calls of node agents: images stay in use until their pods end", cut)

    async def use(self, node: str, image_id: str, instance: Instance) -> Prepared:
        """Begin a use. Raises AgentError, AgentUnreachable."""
        if (task := self._later.get((instance.id, image_id))) is not None:
            task.cancel()
        try:
            prepared = await self._agents.use(node, image_id, slot=instance.id)
        except AgentError:
            raise
        except BaseException:
            # The agent may have recorded it although its answer is lost.
            self.unlaid(instance, image_id)
            raise
        self._since[instance.id] = prepared.since
        return prepared

    async def ask(
        self, node: str, image: str, instance: Instance, *, tenant: str, auth: Auth | None, expected: str
    ) -> Prepared | None:
        """Begin a use of an image by its name, which the node should have: `expected` by its id.

        Return None if no use has begun: the node does not have it, or the agent is an earlier version. Raises as `use`.
        """
        earlier = self._later.get((instance.id, expected))
        if earlier is not None:
            earlier.cancel()
        begun: Prepared | None = None
        lost = True
        try:
            answer = await self._agents.prepare(
                node, image, tenant=tenant, auth=auth, wait=0.0, slot=instance.id
            )
            lost = False
            if isinstance(answer, Prepared) and answer.since is not None:
                begun = answer
        except AgentError:
            lost = False
            raise
        finally:
            if (begun is None or begun.id != expected) and (lost or earlier is not None):
                self.unlaid(instance, expected)
        if begun is not None:
            if begun.id != expected and (task := self._later.get((instance.id, begun.id))) is not None:
                task.cancel()
            self._since[instance.id] = begun.since
        return begun

    def laid(self, instance: Instance, *, before: Laid | None) -> None:
        """Take back the use of the image that a claim has replaced. Return at once."""
        since = self._since.pop(instance.id, None)
        if before is None or instance.laid is None or before.id == instance.laid.id:
            return
        self._calls.spawn(self._unuse_replaced(instance, before.id, until=since))

    async def _unuse_replaced(self, instance: Instance, image_id: str, *, until: float | None) -> None:
        # Without `until`, of an earlier version's agent, a later call could end the use of a later claim.
        if until is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._after_claim)
        await self._unuse(instance, image_id, until=until)

    def unlaid(self, instance: Instance, image_id: str) -> None:
        """Take back the use of an image that a claim has not laid, unless the instance has it. Return at once."""
        since = self._since.pop(instance.id, None)
        if instance.laid is not None and instance.laid.id == image_id:
            return
        key = (instance.id, image_id)
        if (before := self._later.get(key)) is not None:
            before.cancel()
        task = self._later[key] = asyncio.create_task(self._unuse_later(instance, image_id, until=since))
        task.add_done_callback(lambda task: self._over(key, task))

    def _over(self, key: tuple[InstanceId, str], task: asyncio.Task[None]) -> None:
        if self._later.get(key) is task:
            del self._later[key]

    async def _unuse_later(self, instance: Instance, image_id: str, *, until: float | None) -> None:
        await asyncio.sleep(self._unlaid_for)
        headers = [("authorization", f"Bearer {instance.token}")]
        try:
            answer = await self._pool.fetch(
                instance.address, "GET", "/v1/state", headers=headers, timeout=_CALL
            )
            state = answer.json()
        except PoolError:
            return  # its pod ends, and with it the use
        if answer.status == 200 and isinstance(state, dict) and state.get("image") != image_id:
            await self._calls.spawn(self._unuse(instance, image_id, until=until))

    async def _unuse(self, instance: Instance, image_id: str, *, until: float | None) -> None:
        """`until`: a use that began later is of another claim, and stays."""
        if instance.node is None:
            return
        try:
            await self._agents.unuse(instance.node, image_id, slot=instance.id, until=until)
        except (AgentError, AgentUnreachable) as error:
            _log.info("an image stays in use until its pod ends: %s", error, extra={"instance": instance.id})
