"""Errors that reject a request: one exception with its HTTP status, code and field."""

from __future__ import annotations


class SidecarError(Exception):
    """Base class of every error that the sidecar raises on purpose."""


class ApiError(SidecarError):
    """An error response; `extra` is merged into its JSON body."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        **extra: object,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.headers = headers
        self.extra = extra

    def body(self) -> dict[str, object]:
        """Return the JSON body of the response."""
        document: dict[str, object] = {"error": self.code, "message": self.message}
        if self.field is not None:
            document["field"] = self.field
        document.update(self.extra)
        return document


class ClientGone(SidecarError):
    """The connection was lost while its request was being handled."""


def bad_input(message: str, *, field: str | None = None) -> ApiError:
    """Return a 400 that names the field."""
    return ApiError(400, "bad_request", message, field=field)


def busy(message: str) -> ApiError:
    """Return a 503 that the client may retry after one second."""
    return ApiError(503, "busy", message, headers=(("Retry-After", "1"),))
