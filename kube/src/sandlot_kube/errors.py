"""What can go wrong between us and an API server."""

from __future__ import annotations


class KubeError(Exception):
    """An answer that is no success: its HTTP status, and `reason` and `message` of the Status in its body.

    `retry_after`: the seconds that the server asked to wait, if it did.
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
    """No answer, or not all of one: status 0. A write may have happened all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(status=0, message=message)


class BadKubeConfig(Exception):
    """There is no way to an API server here, or the kubeconfig names one that cannot be used; says which field."""
