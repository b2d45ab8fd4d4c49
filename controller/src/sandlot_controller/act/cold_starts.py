"""Creates the pods of cold starts, oldest first, as many at a time as the nodes can start."""

from __future__ import annotations

from collections.abc import Callable

from sandlot_contract import images
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox
from sandlot_kube.template import Template

from ..metrics import Metrics
from ..plan.placement.ledger import NoNode
from ..plan.pod import sandbox_pod
from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from .api import Api
from .node_choices import NodeChoices, shape_of
from .retry import until_done
from .tasks import Tasks

_AT_ONCE = 64  # requests


class ColdStarts:
    """Queue of cold starts by Sandbox name; every method except `close` returns at once."""

    def __init__(
        self,
        world: World,
        api: Api,
        *,
        choices: NodeChoices,
        settings: Settings,
        tokens: InstanceTokens,
        metrics: Metrics,
        made: Callable[[str], None],
        failed: Callable[[Sandbox, str], None],
    ) -> None:
        """`made` is called once the pod exists, seen by the watch or not, `failed` if none can be created."""
        self._world = world
        self._api = api
        self._choices = choices
        self._settings = settings
        self._tokens = tokens
        self._metrics = metrics
        self._made = made
        self._failed = failed
        self._tasks = Tasks()
        # Waiting for their turn: those of one shape get a node or wait together.
        self._queues: dict[Template, dict[str, None]] = {}
        self._starting: set[str] = set()  # their pods are not ready yet
        self._made_at: dict[str, float] = {}
        self._replaced: set[str] = set()  # their pods are gone, and never had a node

    def begin(self, name: str) -> None:
        """Queue a Sandbox that needs a pod."""
        sandbox = self._world.sandboxes.get(name)
        if sandbox is not None and name not in self._starting:
            self._queues.setdefault(shape_of(sandbox.spec.template), {}).setdefault(name)
        self.admit()

    def again(self, name: str) -> None:
        """Forget the pod of a Sandbox, which is gone for want of a node; the next `begin` creates another."""
        self._made_at.pop(name, None)
        self._starting.discard(name)
        self._replaced.add(name)

    def settled(self, name: str) -> None:
        """Stop counting a start, since it has ended or failed."""
        for queue in self._queues.values():
            queue.pop(name, None)
        self._starting.discard(name)
        self.admit()

    def forget(self, name: str) -> None:
        """Forget a Sandbox whose resource is gone."""
        self._made_at.pop(name, None)
        self._replaced.discard(name)
        self.settled(name)

    def is_queued(self, name: str) -> bool:
        """Return whether the creation of its pod has not begun."""
        return any(name in queue for queue in self._queues.values())

    def made_at(self, name: str) -> float | None:
        return self._made_at.get(name)

    def is_replaced(self, name: str) -> bool:
        """Return whether its only pod so far is gone for want of a node, so that nothing ever ran in it."""
        return name in self._replaced

    def admit(self) -> None:
        """Start as many queued Sandboxes as the nodes can."""
        for shape in [shape for shape, queue in self._queues.items() if self._admit(shape, queue)]:
            del self._queues[shape]
        self._metrics.waiting.set(sum(map(len, self._queues.values())))

    async def close(self) -> None:
        await self._tasks.close()

    def _admit(self, shape: Template, queue: dict[str, None]) -> bool:
        """Start queued Sandboxes of one shape; return whether none is left."""
        ledger, cap = self._choices.ledger, self._settings.cold_starts_per_node
        while queue:
            if ledger.is_scheduler_next():
                return False
            if not self._choices.is_admitted(shape) and self._choices.is_tried(shape):
                return False
            if len(self._tasks) >= _AT_ONCE:
                return False
            node = ledger.choose(self._choices.needs(shape), cap=cap, wanted=len(queue))
            if isinstance(node, NoNode) and node is not NoNode.FULL:
                return False
            name = next(iter(queue))
            del queue[name]
            sandbox = self._world.sandboxes.get(name)
            if sandbox is not None and name not in self._world.pods:
                self._start(sandbox, node=None if node is NoNode.FULL else node)
        return True

    def _start(self, sandbox: Sandbox, *, node: str | None) -> None:
        name = sandbox.metadata.name
        self._starting.add(name)
        if self._tasks.spawn(name, self._create(sandbox, node), then=self.admit):
            cap = self._settings.cold_starts_per_node
            self._choices.expect(name, sandbox.spec.template, node=node, cap=cap)

    async def _create(self, sandbox: Sandbox, node: str | None) -> None:
        name = sandbox.metadata.name
        why = images.refusal(sandbox.spec.template.image, allowed=self._settings.registries)
        if why is None:
            token, key_id = self._tokens.instance(name), self._tokens.signing_id
            body = sandbox_pod(sandbox, token=token, settings=self._settings, node=node, key_id=key_id)
            try:
                await until_done(lambda: self._api.create_pod(body, kind="cold"))
            except KubeError as error:
                why = f"could not create the pod: {error}"
        if why is not None:
            self._choices.forget(name)
            self.settled(name)
            self._failed(sandbox, why)
            return
        self._made_at[name] = self._world.clock()
        self._replaced.discard(name)
        self._made(name)
