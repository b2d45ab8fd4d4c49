"""Parses image names: this machine's root, an OCI archive or layout, or an image in a registry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandlot_contract.images import is_image_name

from .errors import ImageError


@dataclass(frozen=True, slots=True)
class Host:
    """The machine's own root."""


@dataclass(frozen=True, slots=True)
class OciPath:
    """An OCI archive (tar) or layout directory; `tag` picks one of several images in it."""

    path: Path
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """An image that skopeo can pull as `docker://{name}`."""

    name: str


Reference = Host | OciPath | Registry


def parse(image: str) -> Reference:
    """Parse `host`, `/path`, `./path`, `~/path`, `oci:PATH[:TAG]`, `oci-archive:PATH[:TAG]` or `NAME[:TAG][@DIGEST]`.

    Raises ImageError.
    """
    if not image or len(image) > 4096 or not image.isprintable():
        raise ImageError("must be a printable name of 1 to 4096 characters", error_type="IMAGE_INVALID")
    if image == "host":
        return Host()
    for prefix in ("oci-archive:", "oci:"):
        if image.startswith(prefix):
            path, tag = _split_tag(image.removeprefix(prefix))
            return OciPath(_absolute(path), tag)
    if image.startswith(("/", "./", "../", "~/")):
        return OciPath(_absolute(image))
    name = image.removeprefix("docker://")
    if is_image_name(name):
        return Registry(name)
    raise ImageError(
        f"{image!r} is neither `host`, a path to an OCI archive or layout, nor an image name",
        error_type="IMAGE_INVALID",
    )


def _split_tag(text: str) -> tuple[str, str | None]:
    path, colon, tag = text.rpartition(":")
    if colon and "/" not in tag:
        return path, tag or None
    return text, None


def _absolute(text: str) -> Path:
    if not text:
        raise ImageError("the path is empty", error_type="IMAGE_INVALID")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ImageError(
            f"{text}: no home directory to expand `~` with", error_type="IMAGE_INVALID"
        ) from error
