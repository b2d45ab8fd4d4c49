"""Carries out ImageWarmups: has the nodes' agents prepare the images of the plan, and reports the progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from sandlot_kube.errors import KubeError
from sandlot_kube.registry_credentials import RegistryCredentials
from sandlot_kube.waiting import wait_set
from sandlot_kube.warmups import ImageWarmup, WarmupPhase

from ..plan.warmup_progress import Progress, all_failed, progress
from ..plan.warmups import Copy, next_pulls, place_all, wanted_images
from ..settings import Settings
from .api import Api
from .copy_failures import CopyFailures, Then
from .node_agents import UNAUTHORIZED, AgentError, NodeAgents, needs_credentials
from .tasks import Tasks
from .warm_nodes import WarmNodes
from .warmup_runs import WarmupRun, begin
from .warmup_statuses import Report, WarmupStatuses

_log = logging.getLogger(__name__)

_BEAT = 0.5  # seconds between two plans, so that a burst of events is one plan
_REST = 60.0
_LOOK = 15.0  # seconds between two looks at the nodes' images
_OFF = "no node prepares images: set slots.enabled and nodeAgent.enabled in the chart's values"
_NO_AGENT = "waiting for a node agent: none is ready"


class WarmupLoop:
    """Control loop of all ImageWarmups; `seen` and `gone` are its events."""

    def __init__(self, api: Api, *, agents: NodeAgents, settings: Settings, now: Callable[[], float]) -> None:
        """`now`: a monotonic clock."""
        self._api = api
        self._agents = agents
        self._settings = settings
        self._now = now
        self._runs: dict[str, WarmupRun] = {}
        self._credentials = RegistryCredentials(settings.registry_credentials)
        self._nodes = WarmNodes(now=now)
        self._look_at = float("-inf")
        self._open: list[Copy] = []  # of the plan
        self._copies: dict[str, list[Copy]] = {}  # of the plan, by image
        self._count_at = float("-inf")
        self._stale = True  # the plan is to be made anew
        self._sized = False  # copies have become ready since the plan, whose sizes it may have guessed
        self._trouble: str | None = None  # what was in the way of the last look
        self._pulling: set[Copy] = set()
        self._failures = CopyFailures(self._nodes, backoff=settings.backoff)
        self._changed = asyncio.Event()
        self._pulls = Tasks()
        self._statuses = WarmupStatuses(
            api,
            interval=settings.status_interval,
            retention=settings.retention,
            now=now,
            written=self._changed.set,
        )

    def seen(self, warmup: ImageWarmup) -> None:
        """Handle a new or changed ImageWarmup."""
        name, standing = warmup.metadata.name, warmup.status.phase == WarmupPhase.DONE
        run = self._runs.get(name)
        if run is not None and run.succeeds(warmup):
            return
        if run is not None and not run.is_of(warmup):
            self.gone(run.resource)  # its deletion comes later
        if standing:
            self._statuses.finished(warmup)
        if run is not None and run.is_of(warmup):
            run.resource = warmup
            if run.standing is standing:
                return
            run.standing = standing
        else:
            run = self._runs[name] = begin(warmup, standing=standing, now=self._now(), after=run)
            self._look_at = float("-inf")  # the agents may be preparing its images
            if not standing:
                self._failures.try_again(run.weights, tenant=warmup.spec.tenant)
                self._nodes.ask_again(run.weights)
        self._replan()

    def known(self) -> list[ImageWarmup]:
        return [run.resource for run in self._runs.values()]

    def gone(self, warmup: ImageWarmup) -> None:
        """Handle a deleted ImageWarmup."""
        name = warmup.metadata.name
        # Events of two resources come in any order: another one may have the name by now.
        if (run := self._runs.get(name)) is None or not run.is_of(warmup):
            return
        del self._runs[name]
        self._statuses.forget(name)
        wanted = {image for run in self._runs.values() for image in run.weights}
        self._failures.keep_only(wanted)
        self._nodes.keep_only(wanted)
        self._replan()

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._changed.clear()
                due = await self._round()
                await asyncio.sleep(_BEAT)
                await wait_set(self._changed, seconds=max(0.0, due - self._now()))
        finally:
            await self._pulls.close()
            await self._statuses.close()

    def _replan(self) -> None:
        self._nodes.ask_only({image for run in self._active() for image in run.weights})
        self._stale = True
        self._changed.set()

    def _tell(self, run: WarmupRun, counts: Progress, *, message: str | None) -> float:
        left = None
        if run.standing and counts.open_copies and any(copy.image in run.weights for copy in self._pulling):
            message = f"done; preparing {counts.open_copies} more copies, since nodes have joined"
        elif counts.open_copies and not run.standing:
            left = run.pace.seconds_left(counts.open_copies, now=self._now())
        report = Report(counts, seconds_left=left, message=message, standing=run.standing)
        return self._statuses.tell(run.resource, report)

    async def _round(self) -> float:
        """Plan once and begin what is due; return when the next round is due at the latest."""
        now = self._now()
        due = [now + _REST]
        self._statuses.delete_old()
        if not self._runs:
            self._forget()
            return due[0]
        if not self._agents.enabled:
            for run in self._active():
                self._tell(run, all_failed(run.weights), message=_OFF)
            return due[0]
        if now >= self._look_at:
            self._trouble = await self._look()
            active = any(self._active())
            self._stale = self._stale or active
            self._look_at = self._now() + (_LOOK if active else _REST)
        due.append(self._look_at)
        if self._nodes.reopen():
            self._stale = True
        if (reopens_at := self._nodes.reopens_at()) is not None:
            due.append(reopens_at)
        if self._stale or (self._sized and not self._pulling):
            self._stale = False
            await self._make_plan()
            if self._stale:
                return now  # a warm-up has come or gone meanwhile
            self._count_at = now
        self._begin_next(now)
        waiting = self._failures.waiting(now=now)
        due += waiting.values()
        # To count every 0.5 s would take long with many images and nodes.
        if now >= self._count_at or not (self._open or self._pulling):
            self._count_at = now + self._settings.status_interval
            settled = bool(self._nodes) and not self._pulling and not waiting and reopens_at is None
            due += self._tell_all(settled=settled)
        if self._open or self._pulling or any(self._active()):
            due.append(self._count_at)
        return min(due)

    async def _make_plan(self) -> None:
        """Plan in a thread: thousands of images on hundreds of nodes take some tenths of a second."""
        demands: dict[bool, list[tuple[str, dict[str, int]]]] = {False: [], True: []}
        stopped: set[str] = set()  # they keep their room where they are
        for run in self._runs.values():
            refused = self._failures.refused(run.resource.spec.tenant)
            kept = {name for name in refused if refused[name].kept} & self._nodes.somewhere
            stopped.update(name for name in kept if self._tenant_for(name) is None)
            left_out = refused.keys() - kept
            weights = {name: weight for name, weight in run.weights.items() if name not in left_out}
            demands[run.standing].append((run.resource.spec.tenant, weights))
        wanted, standing = wanted_images(demands[False]), wanted_images(demands[True])
        self._sized = False
        plan = await asyncio.to_thread(
            place_all,
            wanted,
            standing,
            self._nodes.for_plan([image.name for image in (*wanted, *standing)], stopped=stopped),
            pulling=frozenset(self._pulling),
            failed=frozenset(self._failures.failed),
        )
        self._open, self._copies = list(plan.copies), plan.by_image()
        self._failures.nowhere(plan.left_out)

    def _begin_next(self, now: float) -> None:
        ready, failed = self._nodes.ready, self._failures.failed
        self._open = [copy for copy in self._open if copy not in ready and copy not in failed]
        for copy in next_pulls(
            [copy for copy in self._open if copy.node in self._nodes],
            somewhere=self._nodes.ready_somewhere,
            pulling=self._pulling,
            waiting=self._failures.waiting(now=now),
            per_node=self._settings.warmup_pulls_per_node,
        ):
            self._begin(copy)

    def _tell_all(self, *, settled: bool) -> list[float]:
        """Report all warm-ups; return when to call again."""
        message = self._trouble or self._nodes.trouble or (None if self._nodes else _NO_AGENT)
        due: list[float] = []
        for run in self._runs.values():
            if run.standing and not self._nodes:
                continue  # the images are where they were, but no agent says so
            counts = progress(
                run.weights,
                copies=self._copies,
                present=self._nodes.present if run.standing else self._nodes.ready,
                refused=self._failures.refused(run.resource.spec.tenant),
                failed=self._failures.failed,
                settled=settled,
                standing=run.standing,
            )
            due.append(self._tell(run, counts, message=message))
        return due

    async def _look(self) -> str | None:
        """Ask the nodes' agents what their nodes have; return what is in the way, if anything is."""
        try:
            addresses = await self._api.node_agents()
        except KubeError as error:
            return f"cannot list the node agents: {error}"
        ours = frozenset(self._pulling)  # they may end, and fail, during the look
        dropped, silent = await self._nodes.look(self._agents, addresses)
        self._failures.dropped(dropped)
        # What an earlier leader began goes on at the agents: it is joined, and counts, before anything else begins.
        for copy in self._failures.may_try(self._nodes.preparing() - ours, now=self._now()):
            self._begin(copy)
        self._stale = self._stale or self._nodes.joined
        return silent

    def _active(self) -> Iterator[WarmupRun]:
        return (run for run in self._runs.values() if not run.standing)

    def _begin(self, copy: Copy) -> None:
        address = self._nodes.address(copy.node)
        tenant = self._tenant_for(copy.image)
        if tenant is not None and self._pulls.spawn(
            f"{copy.image} on {copy.node}", self._pull(copy, address, tenant), then=self._changed.set
        ):
            self._pulling.add(copy)

    async def _pull(self, copy: Copy, address: str, tenant: str) -> None:
        auth = None
        try:
            auth = self._credentials.of(tenant, copy.image)
            size = await self._agents.prepare(address, copy.image, tenant=tenant, auth=auth)
        except AgentError as error:
            if error.code == UNAUTHORIZED and auth is None:
                error = needs_credentials(copy.image, tenant, error)
            self._could_not(copy, error, tenant=tenant)
        except Exception as error:
            # Without the error's own text, which may quote credentials.
            unexpected = AgentError("internal", f"could not be prepared: {type(error).__name__}")
            self._could_not(copy, unexpected, tenant=tenant)
            raise
        else:
            self._failures.made(copy)
            self._nodes.prepared(copy, size)
            self._sized = True
            self._count(copy)
        finally:
            self._pulling.discard(copy)

    def _tenant_for(self, image: str) -> str | None:
        """Return a tenant that wants the image, and that its registry has not denied it."""
        tenants = (run.resource.spec.tenant for run in self._runs.values() if image in run.weights)
        return next((one for one in tenants if image not in self._failures.refused(one)), None)

    def _could_not(self, copy: Copy, error: AgentError, *, tenant: str) -> None:
        then = self._failures.note(copy, error, tenant=tenant, now=self._now())
        if then in (Then.ELSEWHERE, Then.REFUSED):
            self._stale = True  # the next plan finds another node, or leaves the image out
        if then in (Then.REFUSED, Then.NEVER):
            self._count(copy)

    def _count(self, copy: Copy) -> None:
        for run in self._runs.values():
            if copy.image in run.weights:
                run.pace.ready(self._now())

    def _forget(self) -> None:
        """Forget everything, when no warm-up is left."""
        self._look_at = float("-inf")
        self._nodes.forget()
        self._failures.forget()
