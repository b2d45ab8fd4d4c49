"""Errors of the API client."""

from __future__ import annotations


class KubeError(Exception):
    """A non-2xx response: its HTTP status, and `reason` and `message` of the Status in its body.

    `retry_after`: the seconds of its Retry-After header, if any.
    """

    def __init__(
        self, *, status: int, reason: str = "", message: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"{message or reason or 'no message'} (status {status})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class KubeUnreachable(KubeError):
    """No complete response (status 0); a write may have happened all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(status=0, message=message)


class BadKubeConfig(Exception):
    """No API server is configured, or the kubeconfig is invalid; the message names the field."""
