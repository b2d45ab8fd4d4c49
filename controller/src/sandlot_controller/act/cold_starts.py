"""Makes the pods of cold starts, the oldest first, and no more at a time than the nodes can start."""

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
    """Sandboxes are given by name; every method but `close` returns at once."""

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
        """`made`: it has a pod, whether or not the watch has shown it. `failed`: it gets none, and why."""
        self._world = world
        self._api = api
        self._settings = settings
        self._tokens = tokens
        self._metrics = metrics
        self._made = made
        self._failed = failed
        self._tasks = Tasks()
        self._usable = UsableNodes(world, settings=settings)
        self._queue: dict[str, None] = {}  # those that wait for their turn
        self._starting: set[str] = set()  # those whose pod is not running yet
        self._made_at: dict[str, float] = {}

    def begin(self, name: str) -> None:
        """It wants a pod."""
        if name not in self._starting:
            self._queue.setdefault(name)
        self.admit()

    def settled(self, name: str) -> None:
        """It is no start any more that others would have to wait for."""
        self._queue.pop(name, None)
        self._starting.discard(name)
        self.admit()

    def forget(self, name: str) -> None:
        """Its resource is gone."""
        self._made_at.pop(name, None)
        self.settled(name)

    def made_at(self, name: str) -> float | None:
        return self._made_at.get(name)

    def admit(self) -> None:
        """Starts as many of those that wait as may be starting at one time."""
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
                why = f"no pod could be made: {error}"
        if why is not None:
            self.settled(name)
            self._failed(sandbox, why)
            return
        self._made_at[name] = self._world.clock()
        self._made(name)
