"""Constructs the parts of a gateway and connects them: backend, supply, life cycle, data plane, events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from sandlot_gateway.archive import Archive
from sandlot_gateway.checkpoints.configured import checkpoints
from sandlot_gateway.checkpoints.temporary import temporary
from sandlot_gateway.control.counters import Counters
from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.ready import by_chance, first_come
from sandlot_gateway.core.run_tally import RunTally
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply_settings import SupplySettings
from sandlot_gateway.data.breaker import Limits
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.data.pool import DialError, HttpPool
from sandlot_gateway.data.shared_exposures import SharedExposures
from sandlot_gateway.data_plane import DataPlane
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.lifecycle import Lifecycle
from sandlot_gateway.engine.pending import PendingStore
from sandlot_gateway.engine.runs import Runs
from sandlot_gateway.engine.scheduling import TenantScheduling
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.events.journal import Journal
from sandlot_gateway.events.relay import Relay
from sandlot_gateway.events.service import Events
from sandlot_gateway.events.webhooks.service import webhooks_of
from sandlot_gateway.gauges import Gauges
from sandlot_gateway.keys import Keys
from sandlot_gateway.masterkey import master_keys
from sandlot_gateway.metrics import Metrics
from sandlot_gateway.quotas import Quotas
from sandlot_gateway.sandbox_notices import SandboxNotices
from sandlot_gateway.sealing import Seal
from sandlot_gateway.service_links import ServiceLinks
from sandlot_gateway.settings import Settings
from sandlot_gateway.sidecar_tls import sidecar_tls
from sandlot_gateway.sidecars import Sidecars
from sandlot_gateway.ssh.shared import sessions_of
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.tracing.setup import tracing_of
from sandlot_gateway.usage.accounts import Accounts
from sandlot_gateway.webhook_listener import WebhookListener
from sandlot_gateway.webhooks import Webhooks

# Seconds to wait for another gateway's sandbox, whose record comes through the API server in some 30 ms.
_PATIENCE = 2.0

MakeBackend = Callable[[Settings, Tokens, HttpPool], Backend]


class Parts:
    """The parts that a gateway starts and stops in order, none of them started."""

    def __init__(self, settings: Settings, *, keys: Keys, quotas: Quotas, make_backend: MakeBackend) -> None:
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
            ran=lambda sandbox: self.notices.ran(sandbox),
            ended=lambda sandbox: self.notices.ended(sandbox),
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
        self.notices = SandboxNotices(
            accounts=self.accounts,
            journal=self.journal,
            runs=self.runs,
            groups=self.lifecycle.groups,
            archive=self.archive,
            exposures=self.exposures,
            links=self.links,
            ssh=self.ssh,
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

    async def _prime(self, address: str) -> None:
        # A local connection is cheaper to open than to keep.
        if not address.startswith("unix:"):
            with contextlib.suppress(DialError):
                await self.pool.prime(address)
