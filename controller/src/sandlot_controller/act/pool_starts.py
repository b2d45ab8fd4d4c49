"""Creates the pool pods that the plan calls for."""

from __future__ import annotations

from sandlot_contract import images
from sandlot_contract.new_ids import new_instance_id
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import SandboxPool

from ..plan.pod import pool_pod
from ..plan.pools import Planner
from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from .api import Api
from .retry import until_done
from .tasks import Tasks


class PoolStarts:
    def __init__(
        self, world: World, api: Api, *, planner: Planner, settings: Settings, tokens: InstanceTokens
    ) -> None:
        self._world = world
        self._api = api
        self._planner = planner
        self._settings = settings
        self._tokens = tokens
        self._tasks = Tasks()

    def begin(self, pool: SandboxPool, *, avoid: tuple[str, ...]) -> None:
        """Begin to create a pod; returns at once. `avoid`: nodes that it must not use."""
        name = new_instance_id()
        self._planner.expect(pool.metadata.name, name, now=self._world.clock())
        self._tasks.spawn(name, self._create(pool, name, avoid))

    async def close(self) -> None:
        await self._tasks.close()

    async def _create(self, pool: SandboxPool, name: str, avoid: tuple[str, ...]) -> None:
        pool_name = pool.metadata.name
        why = images.refusal(pool.spec.template.image, allowed=self._settings.registries)
        if why is not None:
            self._failed(pool_name, name, message=why)
            return
        token = self._tokens.instance(name)
        body = pool_pod(pool, instance_id=name, token=token, settings=self._settings, avoid=avoid)

        async def once() -> None:
            # While the API server is away, the request is repeated under this name and stays expected.
            self._planner.expect(pool_name, name, now=self._world.clock())
            await self._api.create_pod(body, kind="pool")

        try:
            await until_done(once)
        except KubeError as error:
            self._failed(pool_name, name, message=f"could not create the pod: {error}")

    def _failed(self, pool: str, name: str, *, message: str) -> None:
        self._planner.seen(pool, name)
        self._planner.failed(pool, now=self._world.clock(), message=message)
        self._world.changed.set()
