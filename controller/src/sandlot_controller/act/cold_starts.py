"""Creates the pods of cold starts, oldest first, as many at a time as the nodes can start."""

from __future__ import annotations

from collections.abc import Callable

from sandlot_contract import images
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox

from ..metrics import Metrics
from ..plan.pod import sandbox_pod
from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.usable_nodes import UsableNodes
from ..world.world import World
from .api import Api
from .retry import until_done
from .tasks import Tasks


class ColdStarts:
    """Queue of cold starts by Sandbox name; every method except `close` returns at once."""

    def __init__(
        self,
        world: World,
        api: Api,
        *,
        settings: Settings,
        tokens: InstanceTokens,
        metrics: Metrics,
        made: Callable[[str], None],
        failed: Callable[[Sandbox, str], None],
    ) -> None:
        """`made` is called once the pod exists, seen by the watch or not, `failed` if none can be created."""
        self._world = world
        self._api = api
        self._settings = settings
        self._tokens = tokens
        self._metrics = metrics
        self._made = made
        self._failed = failed
        self._tasks = Tasks()
        self._usable = UsableNodes(world, settings=settings)
        self._queue: dict[str, None] = {}  # waiting for their turn
        self._starting: set[str] = set()  # their pods are not ready yet
        self._made_at: dict[str, float] = {}

    def begin(self, name: str) -> None:
        """Queue a Sandbox that needs a pod."""
        if name not in self._starting:
            self._queue.setdefault(name)
        self.admit()

    def settled(self, name: str) -> None:
        """Stop counting a start, since it has ended or failed."""
        self._queue.pop(name, None)
        self._starting.discard(name)
        self.admit()

    def forget(self, name: str) -> None:
        """Forget a Sandbox whose resource is gone."""
        self._made_at.pop(name, None)
        self.settled(name)

    def made_at(self, name: str) -> float | None:
        return self._made_at.get(name)

    def admit(self) -> None:
        """Start as many queued Sandboxes as the limit allows."""
        limit = self._settings.cold_starts_per_node * max(1, len(self._usable.names()))
        while self._queue and len(self._starting) < limit:
            name = next(iter(self._queue))
            del self._queue[name]
            sandbox = self._world.sandboxes.get(name)
            if sandbox is not None and name not in self._world.pods:
                self._starting.add(name)
                self._tasks.spawn(name, self._create(sandbox))
        self._metrics.waiting.set(len(self._queue))

    async def close(self) -> None:
        await self._tasks.close()

    async def _create(self, sandbox: Sandbox) -> None:
        name = sandbox.metadata.name
        why = images.refusal(sandbox.spec.template.image, allowed=self._settings.registries)
        if why is None:
            body = sandbox_pod(sandbox, token=self._tokens.instance(name), settings=self._settings)
            try:
                await until_done(lambda: self._api.create_pod(body, kind="cold"))
            except KubeError as error:
                why = f"could not create the pod: {error}"
        if why is not None:
            self.settled(name)
            self._failed(sandbox, why)
            return
        self._made_at[name] = self._world.clock()
        self._made(name)
