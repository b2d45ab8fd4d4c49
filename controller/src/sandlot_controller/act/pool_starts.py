"""Creates the pool pods that the plan calls for."""

from __future__ import annotations

from sandlot_contract.new_ids import new_instance_id
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import SandboxPool

from ..plan.pod import pool_pod, refusal
from ..plan.pools import Planner
from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from .api import Api
from .node_choices import NodeChoices
from .retry import until_done
from .tasks import Tasks


class PoolStarts:
    def __init__(
        self,
        world: World,
        api: Api,
        *,
        planner: Planner,
        choices: NodeChoices,
        settings: Settings,
        tokens: InstanceTokens,
    ) -> None:
        self._world = world
        self._api = api
        self._planner = planner
        self._choices = choices
        self._settings = settings
        self._tokens = tokens
        self._tasks = Tasks()

    def begin(self, pool: SandboxPool, *, node: str | None) -> None:
        """Begin to create a pod on this node (None: on any); returns at once."""
        name = new_instance_id()
        if self._expect(pool, name, node):
            self._tasks.spawn(name, self._create(pool, name, node))

    async def close(self) -> None:
        await self._tasks.close()

    def _expect(self, pool: SandboxPool, name: str, node: str | None) -> bool:
        """Expect the pod; return False if the pool is gone, so that it must not be created."""
        if not self._planner.expect(pool.metadata.name, name, now=self._world.clock()):
            self._choices.forget(name)
            return False
        self._choices.expect(name, pool.spec.template, node=node, cap=self._settings.starts_per_node)
        return True

    async def _create(self, pool: SandboxPool, name: str, node: str | None) -> None:
        pool_name = pool.metadata.name
        why = refusal(pool.spec.template, settings=self._settings)
        if why is not None:
            self._failed(pool_name, name, message=why)
            return
        token, key_id = self._tokens.instance(name), self._tokens.signing_id
        body = pool_pod(
            pool, instance_id=name, token=token, settings=self._settings, node=node, key_id=key_id
        )

        async def once() -> None:
            # While the API server is away, the request is repeated under this name and stays expected.
            if self._expect(pool, name, node):
                await self._api.create_pod(body, kind="pool")

        try:
            await until_done(once)
        except KubeError as error:
            self._failed(pool_name, name, message=f"could not create the pod: {error}")

    def _failed(self, pool: str, name: str, *, message: str) -> None:
        self._planner.seen(pool, name)
        self._choices.forget(name)
        self._planner.failed(pool, now=self._world.clock(), message=message)
        self._world.changed.set()
