"""The Kubernetes backend: asks for pods by Sandbox resources, and tells the gateway what becomes of them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass
from typing import Any

from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import BadKubeConfig, KubeError, KubeUnreachable
from sandlot_kube.objects import Ended, Pod

from ...data.pool import HttpPool
from ...sidecars import Sidecars
from ...tokens import Tokens
from ..base import BackendError, Claim, Events, Instance, PoolSpec, PoolStatus, Template, Unavailable
from .asking import Asker
from .deaths import death_of, is_over
from .instances import Entry, Instances
from .pools import Pools
from .records import Known, Records, ending
from .translate import check_image, refusal, sandbox_body, to_kube
from .watches import Watches

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Times in seconds."""

    context: str | None = None
    namespace: str | None = None
    subdomain: str = "sandboxes"
    cluster_domain: str = "cluster.local"
    launch_timeout: float = 5.0  # for the API server to take a Sandbox; a caller waits for it
    retry_after: float = 2.0  # told to callers while the API server takes nothing
    sync_timeout: float = 10.0  # for the first lists; after it the gateway starts without them
    settle_timeout: float = 5.0  # for the answers of sidecars that were there before
    verdict_wait: float = 15.0  # for the controller to say why a pod ended
    starting_for: float = 60.0  # how long a pool's pod counts as being on its way
    late_record: float = 10.0  # another gateway's claim without a record by then gets it from this one


class KubernetesBackend:
    """One namespace's sandboxes. Without an API server it goes on with what sidecars say, and starts nothing."""

    name = "kubernetes"
    finds_all = False

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
            raise BackendError(f"no way to a Kubernetes API server: {error}") from error
        self._namespace = namespace = settings.namespace or self._client.namespace
        self._settings = settings
        self._pool = pool
        self._sidecars = Sidecars(pool, call_timeout=2.0)
        domain = f"{settings.subdomain}.{namespace}.svc.{settings.cluster_domain}"
        self._instances = Instances(tokens=tokens, domain=domain)
        self._asker = Asker(pool=pool, told=self._told)
        self._records = Records(self._client, namespace=namespace, seen=self._sandbox_seen)
        self._pools = Pools(self._client, namespace=namespace, starting=self._starting)
        self._watches = Watches(
            self._client,
            namespace=namespace,
            sandboxes=self._records,
            pools=self._pools,
            pods_replaced=self._pods_replaced,
            pod_changed=self._pod_changed,
            pod_deleted=self._pod_deleted,
        )
        self._events: Events | None = None
        self._pool_starts: dict[str, Entry] = {}  # pods of pools that have not been heard of
        self._verdicts: dict[str, asyncio.TimerHandle] = {}  # waits for the controller's word

    async def start(self, events: Events) -> None:
        self._events = events
        self._watches.start()
        if not await self._watches.synced(timeout=self._settings.sync_timeout):
            _log.warning("starting without the API server: %s", self._watches.failure)
        await self._asker.settle(timeout=self._settings.settle_timeout)

    async def stop(self) -> None:
        await self._records.close(timeout=5.0)
        await self._watches.close()
        await self._asker.close()
        for timer in self._verdicts.values():
            timer.cancel()
        self._verdicts.clear()
        await self._client.close()

    async def destroy_all(self) -> None:
        """Pools are the cluster's and not this gateway's: their warm pods stay."""
        own = [entry for entry in self._instances if entry.claim is not None or entry.cold]
        await asyncio.gather(*(self.destroy(entry.instance.id) for entry in own))
        await self._records.flush(timeout=10.0)

    # Starts.

    async def launch(self, template: Template, *, pool: str | None = None) -> Instance:
        check_image(template)
        instance_id = f"i-{secrets.token_hex(8)}"
        # Before the request: its sidecar's first words may be here before the answer.
        entry = self._instances.add(instance_id, template, cold=True)
        body = sandbox_body(instance_id, {"template": to_kube(template)})
        try:
            await self._client.request(
                "POST", paths.sandboxes(self._namespace), body=body, timeout=self._settings.launch_timeout
            )
        except KubeError as error:
            self._instances.remove(instance_id)
            if isinstance(error, KubeUnreachable):
                self._records.drop(instance_id, template=template)  # it may be there all the same
            raise refusal(error, retry_after=self._settings.retry_after) from error
        except asyncio.CancelledError:
            self._instances.remove(instance_id)
            self._records.drop(instance_id, template=template)
            raise
        return entry.instance

    def ready(self, instance_id: str) -> None:
        """Pools are the controller's business."""

    def nudge(self, pool: str) -> None:
        """The record of the claim tells the controller."""

    async def recycle(self, instance: Instance) -> bool:
        return False

    # What sidecars say.

    def instance(self, instance_id: str) -> Instance | None:
        entry = self._instances.get(instance_id)
        return None if entry is None or entry.leaving else entry.instance

    def hear(self, instance_id: str, state: dict[str, Any]) -> Instance | None:
        if self._instances.is_gone(instance_id):
            return None
        entry = self._instances.from_state(instance_id, state, template=self._template(state))
        if entry is None:
            raise Unavailable(f"the template of {instance_id} is not known yet")
        if entry.leaving:
            return None
        self._heard(entry, state)
        return entry.instance

    def _told(self, entry: Entry, state: dict[str, Any]) -> None:
        """The answer to a question, unless a webhook was faster."""
        if entry.heard or entry.leaving or self._events is None:
            return
        self._instances.from_state(entry.instance.id, state, template=entry.instance.template)
        self._heard(entry, state)
        self._events.instance_found(entry.instance, state)

    def _heard(self, entry: Entry, state: dict[str, Any]) -> None:
        if state.get("phase") != "starting":
            entry.heard = True
            self._asker.leave(entry.instance.id)
            self._pool_starts.pop(entry.instance.id, None)

    def _ask(self, entry: Entry) -> None:
        entry.heard = False
        self._asker.ask(entry)

    def _template(self, state: dict[str, Any]) -> Template | None:
        """What the key in a state document stands for, if a pool or an instance has it."""
        return self._pools.template(str(state.get("template")))

    # Claims and ends.

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        entry = self._instances.get(instance.id)
        if entry is None or entry.leaving:
            return
        entry.claim = claim
        if ours:
            entry.heard = True
            self._asker.leave(instance.id)
        elif time.time() - claim.at < self._settings.late_record or not self._watches.sandboxes_synced:
            return  # the gateway that made the claim is writing its record
        self._records.claim(instance.id, claim, template=instance.template, cold=entry.cold)

    def ended(self, instance_id: str, *, verdict: str, message: str | None, exit_code: int | None) -> None:
        entry = self._instances.get(instance_id)
        if entry is not None and entry.claim is not None:
            self._write_end(entry, verdict=verdict, message=message, exit_code=exit_code)

    async def destroy(self, instance_id: str) -> None:
        entry = self._instances.get(instance_id)
        if entry is None or entry.leaving:
            return
        if entry.claim is None and not await self._sidecars.end_unclaimed(entry.instance):
            self._ask(entry)  # by another gateway, a moment ago
            return
        entry.leaving = True
        self._asker.leave(instance_id)
        if entry.claim is None and entry.cold:
            self._records.drop(instance_id, template=entry.instance.template)
        else:
            self._write_end(entry, verdict="sandbox_lost", message="the gateway gave it up", exit_code=None)

    def _write_end(self, entry: Entry, *, verdict: str, message: str | None, exit_code: int | None) -> None:
        instance = entry.instance
        if entry.claim is not None:
            self._records.claim(instance.id, entry.claim, template=instance.template, cold=entry.cold)
        ended = ending(verdict, message=message, exit_code=exit_code)
        self._records.end(instance.id, ended, template=instance.template, cold=entry.cold)

    # What the watches show.

    def _sandbox_seen(self, known: Known) -> None:
        entry = self._instances.get(known.pod)
        if known.ended is not None:
            self._lose(known.pod, ended=known.ended)
        elif known.claimed and entry is not None and entry.claim is None and not entry.leaving:
            self._ask(entry)  # another gateway's: learn whose it is

    def _pods_replaced(self, pods: list[Pod]) -> None:
        names = {pod.metadata.name for pod in pods}
        now = time.monotonic()
        for entry in self._instances:
            # One that was only heard of may be newer than the list; a cold one may wait for its pod.
            fresh = not entry.pod_seen and (entry.cold or now - entry.began < self._settings.starting_for)
            if entry.instance.id not in names and not fresh:
                self._dying(entry, None)
        for pod in pods:
            self._pod_changed(pod)

    def _pod_changed(self, pod: Pod) -> None:
        entry = self._instances.from_pod(pod)
        if entry is None:
            return
        if is_over(pod):
            self._dying(entry, pod)
            return
        if not entry.heard and not entry.leaving:
            if entry.instance.pool is not None:
                self._pool_starts[entry.instance.id] = entry
            if pod.status.pod_ip is not None:
                self._asker.ask(entry)

    def _pod_deleted(self, pod: Pod) -> None:
        entry = self._instances.get(pod.metadata.name)
        if entry is not None:
            self._dying(entry, pod)

    def _dying(self, entry: Entry, pod: Pod | None) -> None:
        """Lost at once where nobody has more to say; else the controller's verdict is waited for."""
        instance_id = entry.instance.id
        known = self._records.of_pod(instance_id)
        ended = known.ended if known is not None else None
        if ended is not None or entry.leaving or (entry.claim is None and not entry.cold):
            self._lose(instance_id, pod=pod, ended=ended)
        elif instance_id not in self._verdicts:
            loop = asyncio.get_running_loop()
            self._verdicts[instance_id] = loop.call_later(
                self._settings.verdict_wait, lambda: self._lose(instance_id, pod=pod)
            )

    def _lose(self, instance_id: str, *, pod: Pod | None = None, ended: Ended | None = None) -> None:
        """It is over: by the Sandbox's word (`ended`) if there is one, else by what the pod looked like at last."""
        timer = self._verdicts.pop(instance_id, None)
        if timer is not None:
            timer.cancel()
        self._asker.leave(instance_id)
        self._pool_starts.pop(instance_id, None)
        entry = self._instances.get(instance_id)
        exit_code = None
        if ended is not None:
            verdict, message, exit_code = ended.verdict, ended.message or ended.verdict, ended.exit_code
            if entry is not None:
                entry.claim = None  # nothing is left to be written about it
        else:
            verdict, message = death_of(pod, started=entry is not None and entry.heard)
        if self._events is not None:
            self._events.instance_lost(instance_id, verdict=verdict, message=message, exit_code=exit_code)
        self._instances.remove(instance_id)
        if entry is not None:
            self._pool.forget(entry.instance.address)

    # Pools.

    def pools(self) -> list[PoolStatus]:
        return self._pools.statuses()

    async def set_pool(self, spec: PoolSpec) -> None:
        await self._pools.set(spec)

    async def delete_pool(self, name: str) -> bool:
        return await self._pools.delete(name)

    def _starting(self, pool: str) -> int:
        since = time.monotonic() - self._settings.starting_for
        return sum(
            entry.instance.pool == pool and entry.began > since for entry in self._pool_starts.values()
        )

    def stats(self) -> dict[str, Any]:
        failure = self._watches.failure
        return {
            "instances": len(self._instances),
            "unwritten": self._records.unwritten,
            "notes": [] if failure is None else [f"the API server cannot be followed: {failure}"],
        }
