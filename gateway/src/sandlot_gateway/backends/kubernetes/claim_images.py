"""Prepares images for claims through the node agents: which node, for whom, and for how long a pod is held for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass

from sandlot_kube.registry_credentials import RegistryCredentials

from ...core.backend import BackendError, NodeFailed, StillPreparing
from ...core.claim_images import ClaimImage, joined_command
from ...core.instances import Instance, Laid
from ...data.pool import HttpPool
from ...tasks import Tasks
from .image_uses import ImageUses
from .node_agents import AgentError, AgentUnreachable, NodeAgents, Prepared, Progress
from .prepared_images import PreparedImages
from .settings import KubernetesSettings

_log = logging.getLogger(__name__)

# Codes of failures that another node may not have.
_OF_THE_NODE = frozenset({"wrong_platform", "no_space", "unsupported", "unavailable", "failed"})
_GONE = "not_found"
_POLL = 2.0  # seconds that an agent holds its answer back, after which the progress is shown
_SHORTEST_PAUSE = 0.05  # seconds between two looks at nodes
_TRIES = 3  # in a row without an answer of an agent that has begun to prepare
_MB = 1_000_000


@dataclass(slots=True)
class _Running:
    """A preparation that all creates of its node, image and tenant share."""

    task: asyncio.Task[Prepared]
    text: str
    since: float


class KubernetesImages:
    def __init__(self, agents: NodeAgents, *, pool: HttpPool, settings: KubernetesSettings) -> None:
        self.agents = agents
        self._settings = settings
        self._credentials = RegistryCredentials(settings.registry_credentials)
        self._known = PreparedImages(remembered=settings.image_remembered)
        self._running: dict[tuple[str, str], dict[str, _Running]] = {}  # (image, tenant) -> node
        self._uses = ImageUses(agents, pool=pool, unlaid_for=settings.image_unlaid)
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.spawn(self._follow())

    async def close(self, *, timeout: float) -> None:
        """Give up preparations, and finish what node agents are told, `timeout` seconds at most."""
        running = [one.task for of_image in self._running.values() for one in of_image.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._tasks.close()
        await self._uses.close(timeout=timeout)

    def nodes_with(self, image: str) -> Collection[str]:
        return self._known.nodes_with(image)

    def name_of(self, image_id: str) -> str | None:
        return self._known.name_of(image_id)

    # Claims.

    async def claim(
        self, image: str, *, tenant: str, instance: Instance, with_config: bool = False
    ) -> ClaimImage | None:
        """Prepare an image, see `Backend.claim_image`."""
        if instance.keeps_image or (instance.has_own(image) and not with_config):
            return None
        node = instance.node
        if node is None:
            raise NodeFailed(f"the node of pod {instance.id} is not known yet; try again", node="")
        for _ in range(2):
            image_id = self._known.find(node, image, tenant, now=_now())
            if image_id is None:
                used = await self._used_at_once(node, image, tenant, instance)
                if used is not None:
                    return _claim_image(used)
                image_id = (await self._prepared(node, image, tenant)).id
            try:
                # Before the claim: the agent may remove an image that no pod uses.
                return _claim_image(await self._uses.use(node, image_id, instance))
            except AgentUnreachable as error:
                raise self._away(error, node) from error
            except AgentError as error:
                self._known.gone(node, image)
                if error.code != _GONE:
                    raise _failure(error, node) from error
        raise NodeFailed(
            f"node {node} removed the image twice before a sandbox could use it; give it more room for images",
            node=node,
            error_type="IMAGE_PULL_FAILED",
        )

    async def _used_at_once(self, node: str, image: str, tenant: str, instance: Instance) -> Prepared | None:
        """Ask for an image and use it in one call, where it should be on the node; None: it has to be prepared."""
        expected = self._known.id_on(node, image)
        if expected is None or node in self._running.get((image, tenant), {}):
            return None
        auth = self._credentials.of(tenant, image)
        try:
            used = await self._uses.ask(node, image, instance, tenant=tenant, auth=auth, expected=expected)
        except AgentUnreachable as error:
            raise self._away(error, node) from error
        except AgentError as error:
            raise _failure(error, node) from error
        if used is not None:
            self._known.allow(node, image, tenant, used, now=_now())
        return used

    def laid(self, instance: Instance, *, before: Laid | None) -> None:
        self._uses.laid(instance, before=before)

    def unlaid(self, instance: Instance, image_id: str) -> None:
        self._uses.unlaid(instance, image_id)

    def _away(self, error: AgentUnreachable, node: str) -> NodeFailed:
        """Note that a node's agent is away, so that other nodes come first."""
        self._known.listed(node, ())
        return NodeFailed(str(error), node=node, lasts=self._settings.agent_outage)

    # Preparations.

    def progress(self, image: str, *, tenant: str) -> str | None:
        """Return how far the preparation is, see `ClaimImages.image_progress`; of several, the one begun first."""
        running = next(iter(self._running.get((image, tenant), {}).values()), None)
        return None if running is None else running.text

    async def _prepared(self, node: str, image: str, tenant: str) -> Prepared:
        running = self._running.get((image, tenant), {}).get(node)
        if running is None:
            task = asyncio.create_task(self._prepare(node, image, tenant))
            running = _Running(task, f"preparing the image on node {node}", _now())
            self._running.setdefault((image, tenant), {})[node] = running
            task.add_done_callback(lambda task: self._over(node, image, tenant, task))
        hold = running.since + self._settings.image_hold - _now()
        await asyncio.wait([running.task], timeout=max(0.0, hold))
        if running.task.done():
            return running.task.result()

        async def finished() -> None:
            await asyncio.shield(running.task)

        raise StillPreparing(finished)

    def _over(self, node: str, image: str, tenant: str, task: asyncio.Task[Prepared]) -> None:
        of_image = self._running[image, tenant]
        del of_image[node]
        if not of_image:
            del self._running[image, tenant]
        if not task.cancelled():
            task.exception()  # read, since every create may have left

    async def _prepare(self, node: str, image: str, tenant: str) -> Prepared:
        """Ask the agent until the image is there. Raises BackendError, NodeFailed."""
        auth = self._credentials.of(tenant, image)
        began = moved = _now()
        last: Progress | None = None
        silent = 0
        wait = self._settings.image_hold
        while True:
            try:
                found = await self.agents.prepare(node, image, tenant=tenant, auth=auth, wait=wait)
            except AgentUnreachable as error:
                silent += 1
                if last is None or silent > _TRIES:
                    raise self._away(error, node) from error
                await asyncio.sleep(silent)
                continue
            except AgentError as error:
                raise _failure(error, node) from error
            if isinstance(found, Prepared):
                self._known.allow(node, image, tenant, found, now=_now())
                return found
            if found != last or found.phase == "waiting":
                moved = _now()
            last, silent, wait = found, 0, _POLL
            self._running[image, tenant][node].text = _text(found, node)
            self._check(node, stalled=_now() - moved, took=_now() - began)

    def _check(self, node: str, *, stalled: float, took: float) -> None:
        limits = self._settings
        if stalled <= limits.image_stall and took <= limits.image_longest:
            return
        why = (
            f"without progress for {stalled:.0f} s" if stalled > limits.image_stall else f"after {took:.0f} s"
        )
        raise BackendError(
            f"node {node} has not prepared the image, {why}; look at the log of its node agent",
            error_type="IMAGE_PULL_FAILED",
        )

    # What the nodes have.

    async def _follow(self) -> None:
        """Look at one node after the other."""
        while True:
            nodes = sorted(self.agents.nodes)
            self._known.keep_nodes(nodes)
            pause = self._settings.image_list_pause
            for node in nodes:
                try:
                    self._known.listed(node, await self.agents.images(node))
                except AgentUnreachable:
                    self._known.listed(node, ())
                except AgentError as error:
                    _log.warning("which images node %s has cannot be read: %s", node, error)
                except Exception:
                    _log.exception("which images node %s has cannot be read", node)
                await asyncio.sleep(max(_SHORTEST_PAUSE, self._settings.image_list_pause / len(nodes)))
                pause = 0.0
            await asyncio.sleep(pause)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _failure(error: AgentError, node: str) -> BackendError:
    if error.code in _OF_THE_NODE:
        return NodeFailed(str(error), node=node, error_type="IMAGE_PULL_FAILED")
    return BackendError(str(error), error_type="IMAGE_PULL_FAILED")


def _text(progress: Progress, node: str) -> str:
    text = f"preparing the image on node {node}: {progress.phase}"
    if progress.total:
        return f"{text}, {progress.done / _MB:.0f} of {progress.total / _MB:.0f} MB"
    return text


def _claim_image(image: Prepared) -> ClaimImage:
    config = image.config
    workdir = config.workdir or "/"
    document = {
        "id": image.id,
        "lower": [image.rootfs],
        "env": config.env,
        "workdir": workdir if workdir.startswith("/") else f"/{workdir}",
        "user": config.user or None,
    }
    return ClaimImage(document, joined_command(config.entrypoint, config.cmd), config.stop_signal)
