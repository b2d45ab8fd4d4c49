"""What a sandbox like another one is created with: as that one has it now, and as its caller may still use it."""

from __future__ import annotations

import msgspec

from sandlot_gateway.control import egress
from sandlot_gateway.control.services import Services, images_refusal
from sandlot_gateway.egress import EVERYTHING, Egress
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec


class ImageRefused(Exception):
    """Raised when the caller may not use the image; the text says why."""


def lost_secrets(spec: Spec) -> list[str]:
    """Return the names of the secrets whose values were in the create: no gateway keeps these."""
    return sorted(set(spec.secret_names) - spec.secret_refs.keys())


async def spec_now(sandbox: Sandbox, *, have: Services) -> Spec:
    """Return what a sandbox was created with, and the egress policy that it has now. Raises ApiError."""
    spec = sandbox.spec
    policy = spec.egress
    if spec.network != "none":
        held = msgspec.convert((await egress.held_policy(sandbox, have=have))["policy"], Egress)
        policy = None if held == EVERYTHING else held
    return msgspec.structs.replace(spec, egress=policy, missed=None)


def usable(spec: Spec, *, have: Services, who: Tenant) -> Spec:
    """Return it without its pool if the caller may not use that any more, and with the runtime class that is allowed now.

    An operator may have withdrawn the one that it has, since it isolates less. Raises ImageRefused.
    """
    pool = have.backend.pool(spec.pool) if spec.pool is not None else None
    has_pool = pool is not None and who.may_use(pool.owner) and pool.template.image in ("", spec.image)
    checked = pool is not None and has_pool and bool(pool.template.image)  # when the pool was created
    if not checked and (why := images_refusal(spec.image, have=have, who=who)):
        raise ImageRefused(why)
    if pool is not None and has_pool:
        return msgspec.structs.replace(spec, runtime_class=pool.template.runtime_class)
    kept = spec.runtime_class if spec.runtime_class in have.settings.runtime_classes else None
    return msgspec.structs.replace(spec, pool=None, runtime_class=kept)
