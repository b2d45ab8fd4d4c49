"""The secrets of a claim: the caller's own values, and those that it names by reference.

References are read when a bring-up begins, and their values stay in its memory: a pending create on disk, a record or
another gateway has the names only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping

from sandlot_gateway.core.backend import Unavailable
from sandlot_gateway.core.secret_refs import NOT_CONFIGURED, SecretRef, SecretSource
from sandlot_gateway.core.supply_events import CannotStart
from sandlot_gateway.core.variables import ENVIRONMENT_BYTES, VARIABLE_BYTES, size_of
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.tracing.trace import stage

from .errors import BadRequestField

FIELD = "secret_refs"
_READING = 5.0  # seconds for all secrets of a create, whose caller waits for them


class SecretsUnreadable(CannotStart):
    """The secrets of a create cannot be read now, whatever it names."""


class SecretValues:
    """`source`: None where references are not configured."""

    def __init__(self, source: SecretSource | None) -> None:
        self._source = source

    def reads(self, sandbox: Sandbox) -> bool:
        """Return whether `of` asks the source for this create."""
        return self._source is not None and bool(sandbox.spec.secret_refs)

    async def of(self, sandbox: Sandbox, given: dict[str, str]) -> dict[str, str]:
        """Return the secrets of the sandbox's claim. Raises BadRequestField, SecretsUnreadable."""
        refs = sandbox.spec.secret_refs
        if not refs:
            return given
        if self._source is None:
            raise BadRequestField(NOT_CONFIGURED, field=FIELD)
        with stage("sandlot.read_secrets"):
            found = await _read(self._source, refs, tenant=sandbox.tenant)
        values = {name: _value(name, ref, found[ref.secret], sandbox) for name, ref in refs.items()}
        variables = [*sandbox.spec.env.items(), *given.items(), *values.items()]
        if sum(size_of(*variable) for variable in variables) > ENVIRONMENT_BYTES:
            raise BadRequestField(
                f"with environment_vars and secrets they are larger than {ENVIRONMENT_BYTES} bytes: write files instead",
                field=FIELD,
            )
        return {**given, **values}


async def _read(
    source: SecretSource, refs: Mapping[str, SecretRef], *, tenant: str
) -> dict[str, Mapping[str, bytes]]:
    """Read each secret once, all at the same time. Raises SecretsUnreadable."""
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for ref in refs.values():
        keys[ref.secret].add(ref.key)
    reads = [
        asyncio.ensure_future(source.read(secret, wanted, tenant=tenant)) for secret, wanted in keys.items()
    ]
    try:
        async with asyncio.timeout(_READING):
            return dict(zip(keys, await asyncio.gather(*reads), strict=True))
    except TimeoutError as error:
        text = (
            f"the secrets of this create could not be read within {_READING:g} s: try again after Retry-After"
        )
        raise SecretsUnreadable(text, retry_after=1.0) from error
    except Unavailable as error:
        raise SecretsUnreadable(str(error), retry_after=error.retry_after) from error
    finally:
        for read in reads:
            read.cancel()  # of several, the first that fails decides


def _value(name: str, ref: SecretRef, found: Mapping[str, bytes], sandbox: Sandbox) -> str:
    """Return one value as text. Raises BadRequestField, without the value."""
    field = f"{FIELD}.{name[:80]}"
    value = found.get(ref.key)
    if value is None:
        # One text for every reason: different ones would tell a tenant which secrets of others exist.
        raise BadRequestField(
            f"tenant {sandbox.tenant!r} may use no secret {ref.secret!r} with a key {ref.key!r}: check both names,"
            " or ask the operator for it",
            field=field,
        )
    which = f"the key {ref.key!r} of secret {ref.secret!r}"
    text = None
    with contextlib.suppress(UnicodeDecodeError):
        text = value.decode()
    if text is None or "\x00" in text:
        raise BadRequestField(
            f"{which} is not UTF-8 text without NUL, which no variable can hold: store it as base64",
            field=field,
        )
    if size_of(name, text) > VARIABLE_BYTES:
        raise BadRequestField(
            f"{which} is larger than {VARIABLE_BYTES} bytes: write a file instead", field=field
        )
    return text
