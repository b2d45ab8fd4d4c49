"""Lists a tenant's sandboxes, those that run and those that are paused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from sandlot_contract.ids import SandboxId

from sandlot_gateway.control.services import Services
from sandlot_gateway.keys import Tenant

from . import documents
from .deadlines import Deadlines
from .listing import PAUSED, RUNNING, wanted_page, wanted_states
from .pauses import Paused, Pauses
from .templates import Templates


class Lists:
    def __init__(self, have: Services, *, templates: Templates, deadlines: Deadlines, pauses: Pauses) -> None:
        self._have = have
        self._templates = templates
        self._deadlines = deadlines
        self._pauses = pauses

    async def page(
        self, query: Mapping[str, list[str]], who: Tenant
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return the page that a query asks for, and the token of the next one. Raises Problem."""
        have = self._have
        states = wanted_states(query)
        metadata = parse_qsl(query.get("metadata", [""])[0], keep_blank_values=True)
        labels = [documents.label_of(unquote(name), unquote(value)) for name, value in metadata]
        await have.learn_claims(who)  # also before the paused ones, which another gateway may have continued
        paused: dict[SandboxId, Paused] = {}
        if PAUSED in states:
            each = await self._pauses.of_tenant(who.name)
            paused = {one.id: one for one in each if set(labels) <= set(one.sandbox.spec.labels)}
        found = [one.sandbox for one in paused.values()]
        if RUNNING in states:
            found += have.directory.list(
                tenant=who.name, labels=labels, active=True, per_page=1 << 30
            ).sandboxes
        page, token = wanted_page(found, query, target=self._templates.target)
        running = [sandbox for sandbox in page if sandbox.id not in paused]
        ends = {one.id: one.checkpoint.created_at for one in paused.values()}
        ends |= dict(zip([one.id for one in running], await self._deadlines.of(running), strict=True))
        listed = [
            documents.listed(
                sandbox,
                end_at=ends[sandbox.id],
                alias=self._templates.alias(sandbox),
                state=PAUSED if sandbox.id in paused else RUNNING,
            )
            for sandbox in page
        ]
        return listed, token
