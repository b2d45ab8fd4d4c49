"""The Kubernetes backend: builds its parts and delegates the gateway's calls to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import BadKubeConfig

from ...core.backend import BackendError, Events
from ...core.gateways import Notes, OtherGateways
from ...core.instances import Instance, PoolSpec, PoolStatus
from ...core.owners import Claim, PendingCreate
from ...core.runs import RunStore
from ...core.slot import Loss, Phase
from ...core.warmups import Warmups
from ...data.pool import HttpPool
from ...sidecars import Sidecars
from ...tokens import Tokens
from .announcer import Announcer
from .destroyer import Destroyer
from .discovery import ClaimDiscovery
from .gateway_calls import GatewayCalls
from .generation_ends import GenerationEnds
from .image_calls import ImageCalls, images_of
from .instances import Instances
from .launcher import Launcher
from .notes import KubernetesNotes
from .peer_endpoints import endpoints_of
from .peers import Peers
from .pods import Pods
from .pools import Pools
from .recorder import Recorder
from .records import Records
from .recycler import Recycler
from .reporter import Reporter
from .runs import KubernetesRuns
from .sandbox_changes import SandboxChanges
from .secrets import secrets_of
from .settings import KubernetesSettings
from .states import SidecarStates
from .usage import KubernetesUsage
from .usage_store import ConfigMapStore
from .view import View
from .warmups import KubernetesWarmups
from .watches import Watches

_log = logging.getLogger(__name__)


class KubernetesBackend(ImageCalls, GatewayCalls):
    """The sandboxes of one namespace. Without an API server it works on with sidecars' reports and starts nothing."""

    name = "kubernetes"
    single_gateway = False
    shares_copies = False
    gpus_keep_image = True  # the node puts the driver's files into the pod's container

    def __init__(
        self,
        *,
        tokens: Tokens,
        pool: HttpPool,
        settings: KubernetesSettings,
        client: KubeClient | None = None,
    ) -> None:
        """`client`: of another API server than the environment's. Raises BackendError."""
        try:
            self._client = client or KubeClient.from_environment(settings.context)
        except BadKubeConfig as error:
            raise BackendError(
                f"cannot find the Kubernetes API server: {error}; run in a pod, or name a --kube-context"
            ) from error
        tokens.now = self._client.now
        self._settings = settings
        self.delete_wait = settings.delete_wait
        namespace = settings.namespace or self._client.namespace
        domain = f"{settings.subdomain}.{namespace}.svc.{settings.cluster_domain}"
        sidecars = Sidecars(pool, call_timeout=2.0)
        self._reporter = Reporter(local_time=self._client.local)
        self._images = images_of(settings, pool=pool)
        self._instances = Instances(
            tokens=tokens,
            domain=domain,
            local_time=self._client.local,
            image_name=self._images.name_of if self._images is not None else None,
            encrypted=settings.sidecar_tls,
            claimed_here=lambda instance_id: (
                self._reporter.events.phase(instance_id) in (Phase.CLAIMING, Phase.OWNED)
            ),
        )
        notes = KubernetesNotes(
            self._client,
            namespace=namespace,
            resource_of=lambda sandbox_id: self._records.resource_of(sandbox_id),
            retry_after=settings.retry_after,
        )
        self._notes = notes
        self.shared_notes: Notes | None = notes
        self._records = Records(
            self._client,
            namespace=namespace,
            seen=lambda change: self._sandbox_changes.changed(change),
            notes=notes,
            pending_create_lasts=settings.pending_create_lasts,
            pending_create_found=lambda sandbox_id, request: self._reporter.events.pending_create_found(
                sandbox_id, request
            ),
            pending_create_over=partial(self._reporter.sandbox_ended_elsewhere, of_pending_create=True),
            refused=lambda what: self._reporter.events.record_refused(what),
            needed=lambda sandbox_id: self._recorder.record_now(sandbox_id),
        )
        self._pools = Pools(
            self._client,
            namespace=namespace,
            starting=lambda pool: self._states.starting(pool),
            keeping_image=lambda pool: self._states.keeping_image(pool) if self._images is not None else 0,
            resetting=lambda pool: self._recycler.resetting(pool),
        )
        self.secrets = secrets_of(self._client, settings)
        self.warmups: Warmups = KubernetesWarmups(self._client, namespace=namespace)
        self.runs: RunStore = KubernetesRuns(self._client, namespace=namespace)
        self.usage = usage = KubernetesUsage(
            ConfigMapStore(self._client, namespace=namespace),
            of=self._records.recorded,
            is_watching=lambda: self._watches.all_show,
            settings=settings,
        )
        self._states = SidecarStates(
            self._instances,
            recorded=self._records.recorded,
            pools=self._pools,
            pool=pool,
            reporter=self._reporter,
            watching=lambda: self._watches.all_show,
            reached=lambda seen: self._recorder.reached(seen),
            claimed_within=settings.claimed_within,
            starting_for=settings.starting_for,
        )
        self._pods = Pods(
            self._instances,
            recorded=self._records.recorded,
            states=self._states,
            pool=pool,
            reporter=self._reporter,
            ended=lambda seen, owner: self._discovery.ended(seen, owner),
            lost=lambda instance_id: self._recorder.settled(instance_id),
            verdict_wait=settings.verdict_wait,
        )
        self._watches = Watches(
            self._client,
            namespace=namespace,
            sandboxes=self._records,
            pools=self._pools,
            pods=self._pods,
            agents=self._images.agents if self._images is not None else None,
            usage=usage,
        )
        view = View(self._instances, self._records, self._states, self._watches, self._reporter)
        self._launcher = Launcher(self._client, view, namespace=namespace, settings=settings)
        peers = None
        if settings.peers:
            endpoints = endpoints_of(settings.peers.name, client=self._client)
            peers = Peers(settings.peers, pool=pool, token=tokens.peer, endpoints=endpoints)
        self._peers = peers
        self._announcer = Announcer(peers=peers, max_body=settings.peers.max_body if settings.peers else 0)
        self._recorder = Recorder(
            view,
            announce=self._announcer.ended,
            late_record=settings.late_record,
            late_end=settings.late_end,
            young=settings.young,
        )
        self._generation_ends = GenerationEnds(view, recorder=self._recorder, reset_within=settings.late_end)
        self._sandbox_changes = SandboxChanges(
            view,
            recorder=self._recorder,
            pods=self._pods,
            generation_ends=self._generation_ends,
            sidecars=sidecars,
        )
        self._destroyer = Destroyer(view, recorder=self._recorder, sidecars=sidecars)
        self._recycler = Recycler(
            view,
            recorder=self._recorder,
            pool=pool,
            announce=self._announcer.reset,
        )
        self._discovery = ClaimDiscovery(
            view,
            peers=peers,
            announcer=self._announcer,
            generation_ends=self._generation_ends,
            look_pause=settings.look_pause,
        )
        self.others: OtherGateways | None = self._discovery if peers else None

    async def start(self, events: Events) -> None:
        self._reporter.events = events
        self._watches.start()
        if self._images is not None:
            self._images.start()
        if not await self._watches.synced(timeout=self._settings.sync_timeout):
            _log.warning("starting without the API server: %s", self._watches.failure)
        await self._discovery.recover(timeout=self._settings.settle_timeout)

    async def stop(self, *, timeout: float) -> None:
        self._recorder.leave()
        # Together: a silent node agent must take no time from the records.
        images = [] if self._images is None else [self._images.close(timeout=timeout * 0.5)]
        shared = (self._records.close(timeout=timeout * 0.5), self._notes.close(timeout=timeout * 0.5))
        await asyncio.gather(*shared, *images)
        for each in (self._watches, self._discovery, self._states, self._sandbox_changes):
            await each.close()
        await self._announcer.close(timeout=timeout * 0.25)
        if self._peers is not None:
            await self._peers.close()
        for part in (self._pods, self._launcher, self._recorder, self._generation_ends):
            part.close()
        await self._client.close()

    async def destroy_all(self, *, timeout: float) -> None:
        """Destroy this gateway's instances; warm pods of pools stay, because the cluster owns them."""
        await self._destroyer.destroy_all(timeout=timeout * 0.75)
        await self._records.flush(timeout=timeout * 0.25)

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: PendingCreate | None = None
    ) -> Instance:
        return await self._launcher.launch(template, wanted=wanted)

    def begun(self, instance_id: InstanceId) -> float | None:
        """Return when the pod got a node: it waits for its turn (coldStartsPerNode) and for capacity before that."""
        seen = self._instances.get(instance_id)
        if seen is None:
            return 0.0
        return seen.pod.placed_at if seen.pod is not None else None

    def unplaced(self, template: Template, *, tenant: str, started: InstanceId | None) -> str | None:
        unplaced = self._instances.unplaced
        if started is not None:
            why = unplaced.of(template, started)
        elif why := unplaced.of_pools(template, pools := self._pools.serving(template, tenant=tenant)):
            why = None if any(map(self._states.placed, pools)) else why
        return None if why is None else f"no node has room for it: {why}"

    def ready(self, instance_id: InstanceId) -> None:
        """Do nothing: the controller fills pools."""

    def nudge(self, pool: str) -> None:
        """Do nothing: the claim record notifies the controller."""

    async def recycle(
        self, instance: Instance, *, generation: int, tenant: str, pools: Collection[str]
    ) -> bool:
        return await self._recycler.recycle(instance, generation=generation, tenant=tenant)

    # Reports of sidecars.

    def instance(self, instance_id: InstanceId) -> Instance | None:
        seen = self._instances.get(instance_id)
        return None if seen is None else seen.instance

    def hear(self, instance_id: InstanceId, state: dict[str, Any]) -> Instance | None:
        return self._states.hear(instance_id, state)

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        self._recorder.claimed(instance, claim, ours=ours)

    def ended(self, instance_id: InstanceId, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        self._recorder.ended(instance_id, end, claim=claim, heard=heard)

    async def destroy(self, instance_id: InstanceId, *, given_back: bool = False) -> None:
        await self._destroyer.destroy(instance_id, given_back=given_back)

    def pools(self) -> list[PoolStatus]:
        return self._pools.statuses()

    def pool(self, name: str) -> PoolSpec | None:
        return self._pools.spec(name)

    async def set_pool(self, spec: PoolSpec) -> None:
        await self._pools.set(spec)

    async def delete_pool(self, name: str) -> bool:
        return await self._pools.delete(name)

    def stats(self) -> dict[str, Any]:
        failure = self._watches.failure
        return {
            "instances": len(self._instances),
            "unwritten": self._records.unwritten,
            "notes": [] if failure is None else [f"the API server cannot be followed: {failure}"],
        }
