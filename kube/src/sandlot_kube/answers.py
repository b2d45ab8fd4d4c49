"""Decodes what the API server answers."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from sandlot_kube.errors import KubeUnreachable

T = TypeVar("T")


class _PageMetadata(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    go_on: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """A part of a list. `metadata.go_on`: what asks for the next one, "" at the end."""

    metadata: _PageMetadata
    items: list[msgspec.Raw] | None = None


def read(answer: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode an answer. Raises KubeUnreachable: a proxy may have answered before the API server got the request."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        start = bytes(answer)[:100].decode(errors="replace")
        raise KubeUnreachable(
            f"the answer is no Kubernetes object ({error}): does a proxy give it? It begins with {start!r}"
        ) from error
