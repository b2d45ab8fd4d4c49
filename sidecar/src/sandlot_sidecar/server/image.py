"""Validates the image of a claim: the root that is built for it, from directories that the config allows."""

from __future__ import annotations

import os

from ..core.errors import bad_input
from . import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_LOWERS = 64
MAX_PATH = 1024


def parse(body: dict[str, Any], root: dict[str, Any]) -> dict[str, Any] | None:
    """Return the claim's image, or None. `root`: the config's, which says what may be laid. Raises a 400."""
    if body.get("image") is None:
        return None
    image = fields.mapping(body, "image")
    if root.get("images") is None:
        raise bad_input("this sidecar has no root.images in its config: leave image out", field="image")
    named = {f"image.{name}": value for name, value in image.items()}
    identity = fields.text(named, "image.id", required=True, limit=128)
    if not identity:
        raise bad_input("image.id must not be empty", field="image.id")
    workdir = fields.text(named, "image.workdir", limit=4096) or "/"
    if not workdir.startswith("/"):
        raise bad_input("image.workdir must be an absolute path", field="image.workdir")
    return {
        "id": identity,
        "lower": _lower(named.get("image.lower"), root),
        "env": fields.environment(named, "image.env"),
        "workdir": workdir,
        "user": fields.user(named, "image.user"),
    }


def _lower(value: object, root: dict[str, Any]) -> list[str]:
    name = "image.lower"
    if not isinstance(value, list) or not 0 < len(value) <= MAX_LOWERS:
        raise bad_input(f"{name} must be a list of 1 to {MAX_LOWERS} directories", field=name)
    paths = [fields.clean(path, name) for path in value]
    if paths == (root.get("lower") or ["/"]) or (paths == ["/"] and root.get("host")):
        return paths
    for path in paths:
        _check(path, root["images"], name)
    return paths


def _check(path: str, images: str, name: str) -> None:
    """Check that a directory is below `images` and that no link leads out of it. Raises a 400."""
    inside = os.path.normpath(images) + "/"
    if len(path) > MAX_PATH or os.path.normpath(path) != path or not path.startswith(inside):
        raise bad_input(
            f"{name}: {path[:MAX_PATH]} is not a path below {images}, written without `..`", field=name
        )
    if not os.path.realpath(path).startswith(os.path.realpath(images) + "/"):
        raise bad_input(f"{name}: a link in {path} leads out of {images}", field=name)
    if not os.path.isdir(path):
        raise bad_input(
            f"{name}: {path} is not a directory on this node: prepare the image first", field=name
        )
