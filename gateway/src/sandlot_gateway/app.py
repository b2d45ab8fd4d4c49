"""Assembles the gateway and orders its start, recovery and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.archive import Archive
from sandlot_gateway.backend_events import BackendEvents
from sandlot_gateway.checkpoints.configured import checkpoints
from sandlot_gateway.checkpoints.temporary import temporary
from sandlot_gateway.control.audit import audit_of
from sandlot_gateway.control.counters import Counters
from sandlot_gateway.control.direct import Direct
from sandlot_gateway.control.pool_limits import PoolLimits
from sandlot_gateway.control.services import Services
from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.ready import by_chance, first_come
from sandlot_gateway.core.run_tally import RunTally
from sandlot_gateway.core.runs import RunId
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply_settings import SupplySettings
from sandlot_gateway.credentials import Credentials
from sandlot_gateway.data.breaker import Limits
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.data.pool import DialError, HttpPool
from sandlot_gateway.data.shared_exposures import SharedExposures
from sandlot_gateway.data_plane import DataPlane
from sandlot_gateway.directory import Directory
from sandlot_gateway.e2b.paths import relocation
from sandlot_gateway.edge import Clients, Edge
from sandlot_gateway.engine.lifecycle import Lifecycle
from sandlot_gateway.engine.pending import PendingStore
from sandlot_gateway.engine.runs import Runs
from sandlot_gateway.engine.scheduling import TenantScheduling
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.events.journal import Journal
from sandlot_gateway.events.relay import Relay
from sandlot_gateway.events.service import Events
from sandlot_gateway.events.webhooks.service import webhooks_of
from sandlot_gateway.fusion.app import fusion_of
from sandlot_gateway.gauges import Gauges
from sandlot_gateway.keys import Keys
from sandlot_gateway.masterkey import master_keys
from sandlot_gateway.mcp import mcp_of
from sandlot_gateway.metrics import Metrics
from sandlot_gateway.prices import PriceList
from sandlot_gateway.quotas import Quotas
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sealing import Seal
from sandlot_gateway.service_links import ServiceLinks
from sandlot_gateway.settings import Settings
from sandlot_gateway.sidecar_tls import sidecar_tls
from sandlot_gateway.sidecars import Sidecars
from sandlot_gateway.ssh.shared import sessions_of
from sandlot_gateway.stop_times import StopTimes
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.tracing.setup import tracing_of
from sandlot_gateway.usage.accounts import Accounts
from sandlot_gateway.webhook_listener import WebhookListener
from sandlot_gateway.webhooks import Webhooks

_log = logging.getLogger(__name__)

# Seconds to wait for another gateway's sandbox, whose record comes through the API server in some 30 ms.
_PATIENCE = 2.0

MakeBackend = Callable[[Settings, Tokens, HttpPool], Backend]


class Gateway:
    """One gateway process without its sockets; `edge` is the ASGI application.

    `start` recovers the sandboxes of an earlier gateway; `stop` leaves them running for the next one, or ends them.
    """

    def __init__(
        self, settings: Settings, *, keys: Keys, quotas: Quotas, prices: PriceList, make_backend: MakeBackend
    ) -> None:
        state_dir = settings.state_dir
        self.settings = settings
        self.tokens = Tokens(master_keys(settings))
        self.metrics = Metrics()
        self.counters = Counters(self.metrics)
        self.tracing = tracing_of(settings, counted=self.metrics)
        tls = sidecar_tls(settings, metrics=self.metrics)
        self.pool = HttpPool(observer=self.metrics, tls=tls)
        self.backend = make_backend(settings, self.tokens, self.pool)
        self.archive = Archive(state_dir / "records", keep=settings.record_keep, limit=settings.record_limit)
        self.journal = Journal(
            entries=settings.events_kept, memory=settings.events_memory, keep=settings.record_keep
        )
        self.directory = Directory(
            keep=settings.record_keep,
            limit=settings.record_limit,
            patience=0.0 if self.backend.single_gateway else _PATIENCE,
            ran=self._sandbox_ran,
            ended=self._sandbox_ended,
            found_ended=self.journal.found_ended,
            dropped=lambda sandbox: self.accounts.dropped(sandbox),
            unreachable=lambda address: self.pool.give_up(address, "the sandbox has ended"),
            touched=lambda sandbox_id: self.lifecycle.ends.orphans.used(sandbox_id),
            sought=self.backend.sought,
            missed=self.backend.missed,
            elsewhere=self.backend.may_have,
        )
        self.accounts = Accounts(
            state_dir / "usage", source=self.backend.usage, directory=self.directory, keep=settings.usage_keep
        )
        self.supply = Supply(
            backend=self.backend,
            slots=Slots(
                rank=first_come() if self.backend.single_gateway else by_chance(),
                kind=self.backend.kind,
            ),
            settings=SupplySettings(
                max_starts=settings.max_starts,
                max_waiting=settings.max_waiting,
                start_timeout=settings.start_timeout,
                spare_seconds=settings.spare_seconds,
            ),
            prime=self._prime,
            schedule=TenantScheduling(quotas, of_run=lambda tenant, run: self.runs.scheduling(tenant, run)),
        )
        self.sidecars = Sidecars(self.pool)
        self.checkpoints = checkpoints(
            settings,
            pool=self.pool,
            quotas=quotas,
            state_dir=state_dir,
            shares=lambda: self.backend.shares_copies,
            users=lambda: {one.spec.checkpoint for one in self.directory.live() if one.spec.checkpoint},
        )
        self.temporary = temporary(self.checkpoints)
        self.lifecycle = Lifecycle(
            directory=self.directory,
            supply=self.supply,
            sidecars=self.sidecars,
            backend=self.backend,
            tokens=self.tokens,
            pending=PendingStore(state_dir / "pending", seal=Seal(self.tokens.pending_keys)),
            observer=self.counters,
            quotas=quotas,
            claim_counted=self.counters.claimed,
            counted_by=self.accounts.name,
            orphan_grace=settings.orphan_grace,
            max_waiting=settings.max_waiting,
            ran=self.archive.append,
            queued=lambda sandbox: self.journal.queued(sandbox, place=self.lifecycle.position(sandbox)),
            restore=self.checkpoints.restore if self.checkpoints else None,
        )
        tally = RunTally(since=time.time())
        self.runs = Runs(
            self.backend.runs,
            directory=self.directory,
            end=lambda sandbox, verdict, why: self.lifecycle.ends.delete(
                sandbox, verdict=verdict, message=why
            ),
            keep=settings.record_keep,
            tally=tally,
        )
        self.webhooks = Webhooks(
            tokens=self.tokens,
            backend=self.backend,
            supply=self.supply,
            directory=self.directory,
            ends=self.lifecycle.ends,
            adoption=self.lifecycle.adoption,
            counted=self.counters.webhook,
            readied=self.metrics.ready_seconds.observe,
            heard=self.pool.heard,
        )
        self.links = ServiceLinks(
            directory=self.directory, pool=self.pool, others=self.backend.others, tokens=self.tokens
        )
        self.webhook_listener = WebhookListener(
            proof=self.webhooks.proof,
            receive=self.webhooks.receive,
            link=self.links.accept,
            counted=self.counters.webhook,
            tls=tls,
        )
        notes = self.backend.shared_notes
        shared = None
        if notes is not None:
            self.tokens.changed.append(notes.tell_again)
            shared = SharedExposures(notes, tokens=self.tokens, listen_host=settings.host)
        self.exposures = Exposures(
            routes=self.directory,
            pool=self.pool,
            listen_host=settings.host,
            ports=settings.expose_ports(),
            store=state_dir / "exposures.json",
            shared=shared,
            observer=self.metrics,
        )
        self.ssh = sessions_of(
            settings, notes=notes, routes=self.directory, pool=self.pool, tokens=self.tokens
        )
        self.data = DataPlane(
            routes=self.directory,
            tokens=self.tokens,
            api_keys=keys,
            pool=self.pool,
            metrics=self.metrics,
            exposures=self.exposures,
            limits=Limits(
                per_sandbox=settings.max_running,
                queue_per_sandbox=settings.max_queued,
                total=settings.max_total,
                access_log=settings.access_log,
            ),
            tracing=self.tracing,
            tally=tally,
        )
        others = self.backend.others
        relay = None if others is None else Relay(self.journal, others)
        self.event_webhooks = webhooks_of(
            settings, journal=self.journal, relay=relay, counted=self.metrics.event_webhook
        )
        self.events = Events(
            self.journal,
            relay=relay,
            limit=settings.event_streams,
            ended=self.metrics.event_stream_ended,
        )
        self.gauges = Gauges(
            self.metrics,
            supply=self.supply,
            directory=self.directory,
            backend=self.backend,
            events=self.events,
        )
        self._recovered = asyncio.Event()
        self.leaving = False
        self.audit = audit_of(settings, keys=keys, tokens=self.tokens, counted=self.metrics)
        services = Services(
            settings=settings,
            keys=keys,
            quotas=quotas,
            pool_limits=PoolLimits(self.backend, quotas),
            prices=prices,
            tokens=self.tokens,
            backend=self.backend,
            directory=self.directory,
            supply=self.supply,
            lifecycle=self.lifecycle,
            sidecars=self.sidecars,
            exposures=self.exposures,
            runs=self.runs,
            checkpoints=self.checkpoints,
            temporary=self.temporary,
            ssh=self.ssh,
            counters=self.counters,
            accounts=self.accounts,
            events=self.events,
            tracing=self.tracing,
            metrics_text=self.gauges.text,
            is_ready=lambda: self._recovered.is_set() and not self.leaving,
        )
        if settings.e2b:
            from sandlot_gateway.e2b.plane import E2bPlane  # loaded only where it is served

            self.data.e2b = E2bPlane(
                services, gate=self.data.request_gate, pool=self.pool, turns=self.data.turns
            )
        self.fusion = fusion_of(settings, services, pool=self.pool)
        control = Direct(services)
        self.mcp = mcp_of(settings, keys=keys, tokens=self.tokens, inside=self.data.inside)
        self.edge = Edge(
            data=self.data,
            control=control if self.mcp is None else self.mcp.before(control),
            fusion=self.fusion,
            recovered=self._recovered,
            max_body=settings.max_body,
            counted=self.counters.request,
            refusal=Credentials(keys=keys, is_peer=self.tokens.is_peer).refusal,
            is_known=self.data.is_known,
            audit=self.audit,
            inside=self.data.inside,
            relocate=relocation(settings),
        )

    async def start(self) -> None:
        """Recover, then accept requests. Raises BackendError, and OSError for an audit log or a store that cannot be used."""
        if self.audit is not None:
            self.audit.open()
        self.accounts.open()
        if self.checkpoints is not None:
            await self.checkpoints.start()
        ended, running = self.archive.load()
        for sandbox in ended:
            self.directory.add(sandbox)
        for sandbox in running:
            self.lifecycle.ends.expect(sandbox)
        await self.backend.start(
            BackendEvents(
                supply=self.supply,
                lifecycle=self.lifecycle,
                directory=self.directory,
                found=self.webhooks.found,
                refused=lambda what: self.metrics.records_refused.labels(what).inc(),
            )
        )
        for spec in self.settings.pools():
            known = self.backend.pool(spec.name)
            await self.backend.set_pool(spec if known is None else replace(spec, reuse=known.reuse))
        self.lifecycle.adoption.resume()
        await self.exposures.start()
        self.exposures.prune()
        if self.ssh is not None:
            await self.ssh.start()
        self.accounts.start()
        if self.data.e2b is not None:
            self.data.e2b.start()
        self.runs.start()
        if self.temporary is not None:
            self.temporary.start()
        self.journal.recovered(known_since=self._known_since(ended), alone=self.backend.single_gateway)
        if self.event_webhooks is not None:
            self.event_webhooks.start()
        self._recovered.set()

    def leave(self) -> None:
        """Become not ready, but keep serving."""
        self.leaving = True

    async def drain(self, seconds: float, *, settled: Callable[[], None]) -> None:
        """Reject new work, wait up to `seconds` for running requests, and cut the others; it may be called again.

        Calls `settled` once no other gateway has a question that only this one can answer: before that they must be
        able to connect, since they take a gateway that refuses connections for dead, and begin its creates again.
        """
        self.leaving = True
        self.directory.release()
        self.lifecycle.groups.release()
        self.journal.close()
        fusion = [] if self.fusion is None else [self.fusion.drain(timeout=seconds)]
        await asyncio.gather(self.data.drain(seconds), self._settle(seconds, settled), *fusion)

    async def _settle(self, seconds: float, settled: Callable[[], None]) -> None:
        mcp = [] if self.mcp is None else [self.mcp.drain(seconds)]
        await asyncio.gather(self._settle_creates(seconds), *mcp)
        settled()

    async def _settle_creates(self, seconds: float) -> None:
        """Wait for pending creates, unless the next gateway on this machine can resume them from disk."""
        if not self.backend.single_gateway:
            loop = asyncio.get_running_loop()
            until = loop.time() + seconds
            for clients in (Clients.PLAIN, Clients.ALL):
                # A request in flight may begin another create.
                await self.edge.drain(clients, timeout=max(until - loop.time(), 0.0))
                await self.lifecycle.creates.settled(timeout=max(until - loop.time(), 0.0))

    async def stop(self, times: StopTimes) -> None:
        """Stop after the last request; with end_sandboxes_on_exit, end all sandboxes.

        One that was cancelled may come again, with shorter times.
        """
        self.leaving = True
        self.journal.close()
        if self.event_webhooks is not None:
            await self.event_webhooks.close()
        await self.events.close()
        if self.fusion is not None:
            await self.fusion.close(timeout=min(2.0, times.cleanups))
        if self.mcp is not None:
            await self.mcp.close()
        if self.data.e2b is not None:
            await self.data.e2b.close()
        await self.runs.close()
        await self.supply.close()
        if self.settings.end_sandboxes_on_exit:
            for sandbox in self.directory.live():
                self.lifecycle.ends.record(
                    sandbox,
                    verdict=SandboxVerdict.DELETED,
                    message="the gateway stopped and ended its sandboxes (end_sandboxes_on_exit)",
                )
            await self.backend.destroy_all(timeout=times.sandboxes)
        loop = asyncio.get_running_loop()
        until = loop.time() + times.cleanups
        if cut := await self.lifecycle.close(timeout=times.cleanups):
            _log.warning("gave up %d creates or cleanups of ended sandboxes that took too long", cut)
        if self.temporary is not None:
            await self.temporary.close()
        if self.checkpoints is not None:
            cut = await self.checkpoints.close(timeout=max(until - loop.time(), 0.0))
            if cut:
                _log.warning("gave up %d checkpoints that were being written; they are FAILED", cut)
        await self.exposures.close()
        await self.links.close()
        if self.ssh is not None:
            await self.ssh.close()
        await self.accounts.close(timeout=times.usage)
        await self.backend.stop(timeout=times.backend)
        await self.pool.close()
        self.archive.close()
        audit = [] if self.audit is None else [self.audit.close(timeout=times.audit)]
        await asyncio.gather(*audit, self.tracing.close(timeout=times.audit))

    def _known_since(self, ended: list[Sandbox]) -> float:
        """Return the time from which on this gateway knows of all sandboxes that have ended."""
        now = self.journal.now()
        if not self.backend.single_gateway:
            return now  # others have those that ended without a record
        if len(ended) < self.settings.record_limit:
            return now - self.settings.record_keep
        return (ended[0].ended_at if ended else None) or now

    def _sandbox_ran(self, sandbox: Sandbox) -> None:
        self.accounts.ran(sandbox)
        self.journal.ready(sandbox)

    def _sandbox_ended(self, sandbox: Sandbox) -> None:
        self.journal.ended(sandbox)
        self.accounts.ended(sandbox)
        self._count_end(sandbox)
        self.lifecycle.groups.ended(sandbox)
        self.archive.append(sandbox)
        self.exposures.sandbox_ended(sandbox.id)
        self.links.sandbox_ended(sandbox.id)
        if self.ssh is not None:
            self.ssh.sandbox_ended(sandbox.id)

    def _count_end(self, sandbox: Sandbox) -> None:
        """Count the end in its run, unless another gateway does: the one that claimed it, or has its create."""
        spec = sandbox.spec
        if spec.run is None or spec.run_epoch is None or sandbox.verdict is None:
            return
        if self.accounts.is_ours(sandbox) or not (sandbox.counted_by or sandbox.pending_elsewhere):
            self.runs.tally.ended((sandbox.tenant, RunId(spec.run)), sandbox.verdict)

    async def _prime(self, address: str) -> None:
        # A local connection is cheaper to open than to keep.
        if not address.startswith("unix:"):
            with contextlib.suppress(DialError):
                await self.pool.prime(address)
