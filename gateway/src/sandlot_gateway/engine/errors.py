"""Errors of creates and resets; control/errors.py maps them to HTTP answers."""

from __future__ import annotations

from enum import StrEnum

from sandlot_gateway.quotas import QuotaName


class QuotaReached(Exception):
    """A quota of the tenant has no room for this create, for `retry_after` seconds at least; None: no wait helps.

    `field`: of the request, which alone asks for more than the quota.
    """

    def __init__(
        self, message: str, *, quota: QuotaName, retry_after: float | None = None, field: str | None = None
    ) -> None:
        super().__init__(message)
        self.quota = quota
        self.retry_after = retry_after
        self.field = field


class GroupKeyUsed(Exception):
    """The idempotency key of a group is of another one, or of one that has ended."""


class GroupFailed(Exception):
    """A group came to nothing, and all its sandboxes have ended.

    `verdict`: of the sandbox that ended; None: there was no room for all in time, and `retry_after` is when to ask again.
    """

    def __init__(self, message: str, *, verdict: str | None = None, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.retry_after = retry_after


class BadRequestField(Exception):
    """The create request is invalid; `field` is the name on the wire."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class ResetCode(StrEnum):
    """A sidecar may say others."""

    NOT_RUNNING = "not_running"
    NOT_CLAIMED = "not_claimed"
    NO_OVERLAY = "no_overlay"
    CONFLICT = "conflict"
    UNREACHABLE = "unreachable"  # nobody knows what it has done
    NOT_EQUAL = "not_equal"  # the sandbox has ended


_NOTHING_DONE: frozenset[str] = frozenset(
    {ResetCode.NOT_RUNNING, ResetCode.NOT_CLAIMED, ResetCode.NO_OVERLAY, ResetCode.CONFLICT}
)


class ResetFailed(Exception):
    """`code`: a ResetCode, or what else a sidecar says."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def nothing_done(self) -> bool:
        return self.code in _NOTHING_DONE
