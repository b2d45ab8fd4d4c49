"""The resource ImageWarmup: images that the nodes prepare ahead."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from sandlot_kube.objects import Metadata


class _Part(msgspec.Struct, gc=False, omit_defaults=True, rename="camel", kw_only=True):
    """Base of all parts; times are RFC 3339 strings, as the API server writes them."""


class WarmupPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    DONE = "Done"  # each image is ready or has failed


class WarmImage(_Part):
    name: str
    weight: int = 1  # how often it occurs in the data set


class ImageWarmupSpec(_Part):
    tenant: str
    images: list[WarmImage] = []


class ImageFailure(_Part):
    image: str
    message: str = ""
    node: str | None = None


class ImageWarmupStatus(_Part):
    """Counts of images and of copies, which are images on nodes."""

    phase: str = (
        WarmupPhase.PENDING
    )  # any string is accepted: during an upgrade it may be a newer controller's
    started_at: str | None = None
    finished_at: str | None = None
    ready: int = 0
    failed: int = 0
    copies: int = 0
    copies_ready: int = 0
    bytes: int = 0
    seconds_left: int | None = None
    errors: list[ImageFailure] = []
    message: str | None = None


class ImageWarmup(_Part):
    metadata: Metadata
    spec: ImageWarmupSpec
    status: ImageWarmupStatus = msgspec.field(default_factory=ImageWarmupStatus)
