"""The exceptions of a lost sandbox, by whose names harbor decides which trials it runs again."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sandlot.errors import Busy, ConnectionFailed, SandboxLost, ServerError, WaitTimeout
from sandlot.integrations._lost_commands import BY_CODE


class SandboxInfrastructureError(RuntimeError):
    """Sandlot or its machines lost the sandbox, or could not be reached: a trial that says nothing about the agent.

    Not a TimeoutError, which harbor takes for the agent's own.
    """


class SandboxEndedByCode(RuntimeError):
    """Code of the sandbox ended the whole sandbox: one of its results, which OwnEnd tells harbor in harbor's own words.

    harbor sees this name only of a sandbox that ended before it was ready, or of a build's.
    """


@contextmanager
def losses(doing: str) -> Generator[None]:
    """Raise what the SDK says of a lost sandbox or server as one of the two exceptions above."""
    try:
        yield
    except SandboxLost as error:
        reason = (
            f"{doing}: the sandbox {error.sandbox_id or 'of this trial'} ended ({error.verdict}): {error}"
        )
        if error.verdict in BY_CODE:
            raise SandboxEndedByCode(reason) from error
        raise SandboxInfrastructureError(
            f"{reason}; run the trial again (harbor run --max-retries)"
        ) from error
    except (Busy, ConnectionFailed, ServerError, WaitTimeout) as error:
        raise SandboxInfrastructureError(
            f"{doing}: Sandlot did not answer as it should: {error}; run the trial again (harbor run --max-retries)"
        ) from error
