"""Puts the gateway's APIs before its parts, and orders start, recovery and shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.backend_events import BackendEvents
from sandlot_gateway.control.audit import audit_of
from sandlot_gateway.control.direct import Direct
from sandlot_gateway.control.pool_limits import PoolLimits
from sandlot_gateway.control.services import Services
from sandlot_gateway.credentials import Credentials
from sandlot_gateway.e2b.paths import relocation
from sandlot_gateway.edge import Clients, Edge
from sandlot_gateway.fusion.app import fusion_of
from sandlot_gateway.keys import Keys
from sandlot_gateway.mcp import mcp_of
from sandlot_gateway.parts import MakeBackend, Parts
from sandlot_gateway.prices import PriceList
from sandlot_gateway.quotas import Quotas
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.settings import Settings
from sandlot_gateway.stop_times import StopTimes

_log = logging.getLogger(__name__)


class Gateway(Parts):
    """One gateway process without its sockets; `edge` is the ASGI application.

    `start` recovers the sandboxes of an earlier gateway; `stop` leaves them running for the next one, or ends them.
    """

    def __init__(
        self, settings: Settings, *, keys: Keys, quotas: Quotas, prices: PriceList, make_backend: MakeBackend
    ) -> None:
        super().__init__(settings, keys=keys, quotas=quotas, make_backend=make_backend)
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
