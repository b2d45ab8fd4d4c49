"""What a request can be refused with: one exception that knows its status, code and field."""

from __future__ import annotations


class SidecarError(Exception):
    """The root of every error the sidecar raises on purpose."""


class ApiError(SidecarError):
    """An answer that is not success; `extra` joins the JSON body."""

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
        """The JSON document of the answer."""
        document: dict[str, object] = {"error": self.code, "message": self.message}
        if self.field is not None:
            document["field"] = self.field
        document.update(self.extra)
        return document


class ClientGone(SidecarError):
    """The connection was lost while its request was being handled."""


def bad_input(message: str, *, field: str | None = None) -> ApiError:
    """A 400 that names the field."""
    return ApiError(400, "bad_request", message, field=field)


def busy(message: str) -> ApiError:
    """A 503 that may be tried again after a second."""
    return ApiError(503, "busy", message, headers=(("Retry-After", "1"),))
