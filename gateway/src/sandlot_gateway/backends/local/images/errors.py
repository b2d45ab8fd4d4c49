"""The error of everything that is wrong with an image."""

from __future__ import annotations

from ....core.backend import BackendError


class ImageError(BackendError):
    """An image that cannot be used; the field is always `docker_image`, and whoever answers puts it in front."""

    def __init__(self, message: str, *, error_type: str = "IMAGE_PULL_FAILED") -> None:
        super().__init__(message, error_type=error_type, field="docker_image")
