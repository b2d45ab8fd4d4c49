"""The error for unusable images."""

from __future__ import annotations

from ....core.backend import BackendError


class ImageError(BackendError):
    """The image cannot be used. The field is always `docker_image`; the API prepends it to the text."""

    def __init__(self, message: str, *, error_type: str = "IMAGE_PULL_FAILED") -> None:
        super().__init__(message, error_type=error_type, field="docker_image")
