"""The Kubernetes backend: asks for pods by Sandbox resources, and tells the gateway what becomes of them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from sandlot_kube import clock, paths
from sandlot_kube.client import KubeClient
from sandlot_kube.ends import Ended
from sandlot_kube.errors import BadKubeConfig, KubeError, KubeUnreachable
from sandlot_kube.objects import Pod

from ...core.backend import BackendError, Events, LeftAlone, Notes, OtherGateways, Unavailable
from ...core.instances import ImageCheck, Instance, PoolSpec, PoolStatus, Template
from ...core.owners import Claim, KeyAnswer, KeyQuestion, Promise
from ...data.pool import HttpPool
from ...sidecars import Sidecars
from ...tasks import Tasks
from ...tokens import Tokens
from .asking import Asker
from .deaths import death_of, is_over
from .giving_up import Outcome, Written, decide
from .instances import Entry, Instances
from .lateends import LateEnds
from .notes import KubernetesNotes
from .peers import Peers, PeerSettings
from .pools import Pools
from .records import Known, Records
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
    peers: PeerSettings | None = None
    launch_timeout: float = 5.0  # for the API server to take a Sandbox; a caller waits for it
    retry_after: float = 2.0  # told to callers while the API server takes nothing
    sync_timeout: float = 10.0  # for the first lists; after it the gateway starts without them
    settle_timeout: float = 5.0  # for the answers of sidecars that were there before
    verdict_wait: float = 15.0  # for the controller to say why a pod ended
    starting_for: float = 60.0  # how long a pool's pod counts as being on its way
    dns_after: float = 5.0  # a start that neither a watch nor its sidecar has told of is then asked by name
    promise: float = (
        120.0  # how long others believe in a gateway's pending create without hearing of it again
    )
    promise_wait: float = 2.0  # for the API server to take one; a caller waits for it
    look_pause: float = 2.0  # between two questions to all who have no owner, for one that is missed
    claimed_within: float = 10.0  # what another gateway started is left to that one for so long
    late_record: float = 10.0  # another gateway's claim without a record by then gets it from this one
    late_end: float = 2.0  # and an end that another gateway seems to have asked for, its end


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
        tokens.now = self._client.now
        self._namespace = namespace = settings.namespace or self._client.namespace
        self._settings = settings
        self._pool = pool
        self._sidecars = Sidecars(pool, call_timeout=2.0)
        domain = f"{settings.subdomain}.{namespace}.svc.{settings.cluster_domain}"
        self._instances = Instances(tokens=tokens, domain=domain)
        self._asker = Asker(pool=pool, told=self._told)
        self._peers = settings.peers and Peers(settings.peers, pool=pool, token=tokens.peer())
        self.others: OtherGateways | None = self if self._peers else None
        notes = KubernetesNotes(
            self._client,
            namespace=namespace,
            resource_of=lambda sandbox_id: self._records.resource_of(sandbox_id),
            retry_after=settings.retry_after,
        )
        self.shared_notes: Notes | None = notes
        self._records = Records(
            self._client,
            namespace=namespace,
            seen=self._sandbox_seen,
            notes=notes,
            promise_lasts=settings.promise,
            promise_found=self._promise_found,
            promise_over=self._promise_over,
            refused=self._record_refused,
        )
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
        self._tasks = Tasks()
        self._events: Events | None = None
        self._pool_starts: dict[str, Entry] = {}  # pods of pools that have not been heard of
        self._look_again_at = 0.0  # on the loop's clock
        self._looking: asyncio.TimerHandle | None = None
        self._verdicts: dict[str, asyncio.TimerHandle] = {}  # waits for the controller's word
        self._unheard: dict[str, asyncio.TimerHandle] = {}  # starts, until DNS is asked for them
        self._late_records: dict[str, asyncio.TimerHandle] = {}  # claims of other gateways without one
        self._late_ends = LateEnds(after=settings.late_end)

    async def start(self, events: Events) -> None:
        self._events = events
        self._watches.start()
        if not await self._watches.synced(timeout=self._settings.sync_timeout):
            _log.warning("starting without the API server: %s", self._watches.failure)
        await self._asker.settle(timeout=self._settings.settle_timeout)

    async def stop(self) -> None:
        self._late_ends.now()
        await self._records.close(timeout=5.0)
        await self._watches.close()
        await self._asker.close()
        await self._tasks.close()
        for timers in (self._verdicts, self._unheard, self._late_records):
            for timer in timers.values():
                timer.cancel()
            timers.clear()
        if self._looking is not None:
            self._looking.cancel()
        await self._client.close()

    async def destroy_all(self) -> None:
        """Pools are the cluster's and not this gateway's: their warm pods stay."""
        own = [entry for entry in self._instances if entry.claim is not None or entry.cold]
        await asyncio.gather(*(self.destroy(entry.instance.id) for entry in own))
        await self._records.flush(timeout=10.0)

    # Starts.

    async def launch(
        self, template: Template, *, pool: str | None = None, wanted: Promise | None = None
    ) -> Instance:
        check_image(template)
        instance_id = f"i-{secrets.token_hex(8)}"
        # Before the request: its sidecar's first words may be here before the answer.
        entry = self._instances.add(instance_id, template, cold=True)
        entry.made_here = True
        spec: dict[str, Any] = {"template": to_kube(template), "state": "Started"}
        if wanted is not None:
            spec |= {
                "madeFor": wanted.sandbox_id,
                "tenant": wanted.tenant,
                "labels": list(wanted.labels),
            }
        body = sandbox_body(instance_id, spec, request=wanted.request if wanted else None)
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
        self._records.made(instance_id, wanted=wanted.sandbox_id if wanted else None)
        self._expect(entry)
        return entry.instance

    def begun(self, instance_id: str) -> float | None:
        """A pod is made in its turn (coldStartsPerNode), and may wait for room: the controller gives up one that has none."""
        entry = self._instances.get(instance_id)
        return entry.placed_at if entry is not None else 0.0

    async def check_image(self, image: str) -> ImageCheck:
        """The gateway asks no registry: nodes fetch images, with credentials and a network of their own."""
        check_image(Template(image=image))
        if any(entry.heard and entry.instance.template.image == image for entry in self._instances):
            return ImageCheck("a sandbox of this image is running")
        text = (
            "not checked whether the registry has it: the node that starts a sandbox fetches it. "
            "Its name is valid and its registry is allowed"
        )
        return ImageCheck(text, checked=False)

    def _expect(self, entry: Entry) -> None:
        """Its webhook may go astray and the watch of pods stand still: then the headless Service names it."""
        loop = asyncio.get_running_loop()
        self._unheard[entry.instance.id] = loop.call_later(self._settings.dns_after, self._look_for, entry)

    def _look_for(self, entry: Entry) -> None:
        del self._unheard[entry.instance.id]
        if entry.heard or entry.leaving or self._instances.get(entry.instance.id) is not entry:
            return
        if entry.pod_seen and self._watches.failure is None:
            self._expect(entry)  # the watch tells its address as soon as it has one
        else:
            self._asker.ask(entry)

    def ready(self, instance_id: str) -> None:
        """Pools are the controller's business."""

    def nudge(self, pool: str) -> None:
        """The record of the claim tells the controller."""

    async def recycle(self, instance: Instance, *, generation: int) -> bool:
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
        if self._is_stale(entry, state):
            # Offered here, an instance that another gateway has started for a create of its own would be claimed by
            # one of this gateway's in that moment.
            self._asker.ask(entry)
            raise LeftAlone
        self._heard(entry, state)
        return entry.instance

    def _told(self, entry: Entry, state: dict[str, Any]) -> bool:
        """The answer to a question, unless a webhook was faster. False: ask again."""
        if entry.heard or entry.leaving or self._events is None:
            return True
        if self._is_stale(entry, state):
            return False
        self._instances.from_state(entry.instance.id, state, template=entry.instance.template)
        self._heard(entry, state)
        self._events.instance_found(entry.instance, state)
        return entry.heard  # not any more, if whoever was told of it has found that more is to be asked

    def _heard(self, entry: Entry, state: dict[str, Any]) -> None:
        if state.get("phase") != "starting":
            entry.heard = True
            self._asker.leave(entry.instance.id)
            self._pool_starts.pop(entry.instance.id, None)

    def _is_stale(self, entry: Entry, state: dict[str, Any]) -> bool:
        """From before a claim whose Sandbox was faster: taken for the truth, it would hide the owner."""
        known = self._records.of_pod(entry.instance.id)
        if state.get("phase") != "warm" or known is None:
            return False
        return known.claimed or (known.made_for is not None and self._is_left(entry))

    def _is_left(self, entry: Entry) -> bool:
        """The gateway that has started it is about to claim it, and only its sidecar tells of that."""
        if entry.made_here:
            return False
        now = time.monotonic()
        entry.warm_since = entry.warm_since or now
        return now - entry.warm_since < self._settings.claimed_within

    def _ask(self, entry: Entry) -> None:
        entry.heard = False
        self._asker.ask(entry)

    def _template(self, state: dict[str, Any]) -> Template | None:
        """What the key in a state document stands for, if a pool or an instance has it."""
        return self._pools.template(str(state.get("template")))

    def sought(self, sandbox_id: str) -> None:
        if self._peers is not None:
            self._tasks.spawn(self._seek(self._peers, sandbox_id))

    async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
        assert self._peers is not None
        return await self._peers.holder_of_key(question, look=self._learn_claims)

    async def _learn_claims(self) -> None:
        """A gateway has died: what it has claimed, and nothing tells of yet, its sidecars do."""
        self._look_at_all()
        await self._asker.settle(timeout=1.0)

    async def _seek(self, peers: Peers, sandbox_id: str) -> None:
        instance_id = await peers.holder(sandbox_id)
        entry = self._instances.get(instance_id) if instance_id is not None else None
        if entry is not None and entry.claim is None and not entry.leaving:
            self._ask(entry)

    def missed(self, new: bool) -> None:
        """Its record may not be written for a long time, without an API server: then only its sidecar can tell."""
        if self._looking is not None or (not new and self._watches.failure is None):
            return
        loop = asyncio.get_running_loop()
        # Not left out when another look was a moment ago: whoever misses one tells of it once.
        self._looking = loop.call_at(max(loop.time(), self._look_again_at), self._look_at_all)

    def _look_at_all(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._look_again_at = asyncio.get_running_loop().time() + self._settings.look_pause
        for entry in self._instances:
            if entry.claim is None and not entry.leaving:
                self._ask(entry)

    # Claims and ends.

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        entry = self._instances.get(instance.id)
        if entry is None or entry.leaving:
            return
        entry.claim = claim
        if ours:
            entry.heard = True
            self._asker.leave(instance.id)
            self._write_claim(entry, claim)
        elif not self._records.confirmed(instance.id, claim.sandbox_id):
            self._expect_record(entry, claim)

    def _expect_record(self, entry: Entry, claim: Claim) -> None:
        """Of another gateway's claim: that one writes it, unless it has died. Timed from when it is heard of here."""
        if entry.instance.id not in self._late_records:
            self._late_records[entry.instance.id] = asyncio.get_running_loop().call_later(
                self._settings.late_record, self._record_overdue, entry, claim
            )

    def _record_overdue(self, entry: Entry, claim: Claim) -> None:
        del self._late_records[entry.instance.id]
        if entry.leaving or entry.claim is None or self._instances.get(entry.instance.id) is not entry:
            return
        if not self._watches.sandboxes_synced:
            self._expect_record(entry, claim)  # it may be there, unseen
        elif not self._records.confirmed(entry.instance.id, claim.sandbox_id):
            self._write_claim(entry, claim)

    async def promise(self, promise: Promise) -> None:
        await self._records.promises.make(promise, timeout=self._settings.promise_wait)

    def promise_ended(self, sandbox_id: str, *, verdict: str, message: str | None) -> None:
        self._records.promises.end(sandbox_id, self._records.ending(verdict, message=message, exit_code=None))

    def ended(
        self, instance_id: str, *, verdict: str, message: str | None, exit_code: int | None, heard: bool
    ) -> None:
        entry = self._instances.get(instance_id)
        if entry is None:
            return
        entry.over = entry.over or heard
        if entry.claim is None:
            return
        # Of this one's own `deleted`, too: its sidecar says so again, and its pod may end when the Sandbox is removed.
        if entry.end_told or instance_id in self._late_ends or self._records.has_end(instance_id):
            return
        write = partial(self._write_end, entry, verdict=verdict, message=message, exit_code=exit_code)
        if heard and verdict == "deleted":
            # Asked for by another gateway, or by this one before its last start.
            self._late_ends.add(instance_id, write)
        else:
            write()

    async def destroy(self, instance_id: str) -> None:
        entry = self._instances.get(instance_id)
        if entry is None or entry.leaving:
            return
        before = entry.standing
        answer = "unknown" if before.claimed else await self._sidecars.end_unclaimed(entry.instance)
        known = self._records.of_pod(instance_id)
        written = Written(
            cold=entry.cold,
            end_coming=instance_id in self._late_ends,
            # Where only its last words were heard, whoever has claimed it writes its end, or the controller.
            claimed_elsewhere=(known is not None and known.claimed) or (entry.over and not entry.made_here),
            blind=self._watches.failure is not None,
        )
        outcome = decide(before, answer, entry.standing, written)
        if outcome is Outcome.KEEP:
            return
        if outcome is Outcome.ASK:
            self._ask(entry)
            return
        entry.leaving = True
        self._asker.leave(instance_id)
        if outcome is Outcome.DROP:
            self._records.drop(instance_id, template=entry.instance.template)
        elif outcome is Outcome.WRITE_END:
            self._write_end(entry, verdict="sandbox_lost", message="the gateway gave it up", exit_code=None)

    def _write_claim(self, entry: Entry, claim: Claim) -> None:
        instance = entry.instance
        self._records.claim(instance.id, claim, template=instance.template, cold=entry.cold, node=entry.node)

    def _write_end(self, entry: Entry, *, verdict: str, message: str | None, exit_code: int | None) -> None:
        instance = entry.instance
        entry.end_told = True
        if entry.claim is not None:
            self._write_claim(entry, entry.claim)
        ended = self._records.ending(verdict, message=message, exit_code=exit_code)
        self._records.end(instance.id, ended, template=instance.template, cold=entry.cold)

    # What the watches show.

    def _sandbox_seen(self, known: Known) -> None:
        entry = self._instances.get(known.pod)
        if known.ended is not None:
            self._late_ends.drop(known.pod)
            if entry is not None and entry.claim is not None and self._records.of_pod(known.pod) is None:
                # Deleted. The controller takes the pod; should none run, the code in there ends all the same.
                self._tasks.spawn(self._end_sidecar(entry.instance, known.ended, of=entry.claim))
            elif entry is not None and entry.claim is not None and known.owner is not None and not known.told:
                self._records.name_owner(known.pod, entry.claim, template=entry.instance.template)
            self._lose(known.pod, ended=known.ended)
            if known.owner is not None:
                self._over(known.owner, known.ended, promised=False, request=known.request)
        elif known.claimed and entry is not None and entry.claim is None and not entry.leaving:
            self._ask(entry)  # another gateway's: learn whose it is

    def _promise_found(self, sandbox_id: str, request: dict[str, Any]) -> None:
        if self._events is not None:
            self._events.promise_found(sandbox_id, request)

    def _record_refused(self, what: str) -> None:
        if self._events is not None:
            self._events.record_refused(what)

    def _promise_over(self, sandbox_id: str, ended: Ended) -> None:
        self._over(sandbox_id, ended, promised=True)

    def _over(
        self, sandbox_id: str, ended: Ended, *, promised: bool, request: dict[str, Any] | None = None
    ) -> None:
        if self._events is not None:
            self._events.sandbox_over(
                sandbox_id,
                verdict=ended.verdict,
                message=ended.message,
                exit_code=ended.exit_code,
                promised=promised,
                request=request,
                ended_at=None if (at := clock.seconds(ended.at)) is None else self._client.local(at),
            )

    async def _end_sidecar(self, instance: Instance, ended: Ended, *, of: Claim) -> None:
        await self._sidecars.end(
            instance, verdict=ended.verdict, message=ended.message, only_of=of.sandbox_id
        )

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
            # From a lost node no end of a connection ever comes; elsewhere the last answer may still be on its way.
            (self._pool.cut if verdict == "node_lost" else self._pool.forget)(entry.instance.address)

    # Pools.

    def pools(self) -> list[PoolStatus]:
        return self._pools.statuses()

    def pool(self, name: str) -> PoolSpec | None:
        return self._pools.spec(name)

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
