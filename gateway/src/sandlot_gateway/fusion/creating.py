"""Creates the sandboxes in which code runs, for the tenant whose code it is: its quotas hold, and its usage counts."""

from __future__ import annotations

import asyncio
from typing import Any

from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.models import CreateRequest
from sandlot_gateway.control.sandboxes import usable_pools
from sandlot_gateway.control.services import Services
from sandlot_gateway.control.translate import spec_of
from sandlot_gateway.core.supply_events import CannotStart, QueueFull
from sandlot_gateway.engine.errors import BadRequestField, QuotaReached
from sandlot_gateway.fusion_option import Place
from sandlot_gateway.keys import Tenant
from sandlot_gateway.quotas import QuotaName
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sidecars import SidecarError

from .groups import CannotCreate, Misconfigured

LABEL = "sandbox-fusion"
# Ends of a create that the same create meets again.
_FINAL = frozenset((SandboxVerdict.IMAGE_PULL, SandboxVerdict.START_FAILED))
# Seconds beyond the gateway's own idle time, so that only workers of a killed gateway end this way.
_SPARE_IDLE = 60.0


class Creator:
    """Creates workers. `idle`: seconds after which the gateway deletes an unused one."""

    def __init__(self, have: Services, *, idle: float, network: str) -> None:
        self._have = have
        self._idle = idle
        self._network = network

    async def create(self, who: Tenant, place: Place) -> Sandbox:
        """Return a RUNNING sandbox. Raises CannotCreate, Misconfigured."""
        have = self._have
        try:
            sandbox = have.lifecycle.create(self._spec(who, place), secrets={}, tenant=who)
        except (QueueFull, CannotStart) as error:
            raise CannotCreate(str(error), retry_after=error.retry_after) from error
        except QuotaReached as error:
            if error.field is not None:
                raise Misconfigured(f"a sandbox of {place} exceeds a quota: {error}") from error
            held = error.quota is not QuotaName.CREATES_PER_SECOND
            raise CannotCreate(str(error), retry_after=error.retry_after or 1.0, over_quota=held) from error
        try:
            # `changed` returns as soon as the gateway is to stop.
            sandbox = await have.lifecycle.wait(sandbox, timeout=have.settings.start_timeout)
            if sandbox.status is Status.RUNNING:
                await have.lifecycle.hand_out(sandbox)
                return sandbox
        except (QueueFull, CannotStart) as error:
            raise CannotCreate(str(error), retry_after=error.retry_after) from error
        except BadRequestField as error:
            raise Misconfigured(f"a sandbox of {place} cannot be created: {error.field}: {error}") from error
        except SidecarError as error:
            have.lifecycle.ends.delete(sandbox)
            raise CannotCreate(f"the sandbox does not answer: {error}") from error
        except asyncio.CancelledError:
            have.lifecycle.ends.delete(sandbox)
            raise
        text = (
            f"a sandbox of {place} did not start: {sandbox.message or sandbox.verdict or 'it takes too long'}"
        )
        if sandbox.verdict in _FINAL:
            raise Misconfigured(text)
        have.lifecycle.ends.delete(sandbox)
        raise CannotCreate(text)

    def _spec(self, who: Tenant, place: Place) -> Spec:
        have = self._have
        asked: dict[str, Any] = {
            "name": LABEL,
            "labels": [LABEL],
            "network": self._network,
            "timeout_minutes": -1,
            "idle_timeout_seconds": self._idle + _SPARE_IDLE,
        }
        asked |= {"pool": place.pool} if place.pool is not None else {"docker_image": place.image}
        pool = have.backend.pool(place.pool) if place.pool is not None else None
        if pool is not None and not who.may_use(pool.owner):
            pool = None
        ready = have.supply.slots.warm
        try:
            return spec_of(
                CreateRequest.model_validate(asked),
                pool=pool,
                pools=usable_pools(have, who),
                ready=lambda pool: ready.count_of(pool.name, pool.template, tenant=who.name),
                lays_images=have.backend.lays_images,
                gpus_keep_image=have.backend.gpus_keep_image,
            )
        except ApiError as error:
            raise Misconfigured(f"--fusion names {place}: {error.detail}") from error
