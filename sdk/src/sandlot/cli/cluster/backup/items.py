"""The resources that a backup keeps: which kinds, which of their fields, and what a file may not hold."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import quote

from ..doc import Doc
from ..release import Release
from .leases import RUN_LABELS, is_run

_OURS = "sandlot.dev/v1alpha1"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# The API server makes a token of its own for the type of service accounts, and Helm's are records of its releases.
SECRET_TYPES = frozenset(
    {"Opaque", "kubernetes.io/tls", "kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"}
)
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # of a Secret it has the values


class BadBackup(ValueError):
    """The file is no backup that can be restored; the message says why, and what to do."""


class Kept(Enum):
    """A kind in the order of a restore: the word for it, its version, plural, and the fields with its content."""

    SECRET = ("secret", "v1", "Secret", "secrets", ("type", "data"))
    USAGE = ("usage", "v1", "ConfigMap", "configmaps", ("binaryData",))
    RUN = ("run", "v1", "ConfigMap", "configmaps", ("data",))
    POOL = ("pool", _OURS, "SandboxPool", "sandboxpools", ("spec",))
    WARMUP = ("warm-up", _OURS, "ImageWarmup", "imagewarmups", ("spec",))

    @property
    def word(self) -> str:
        return self.value[0]

    @property
    def base(self) -> str:
        version = self.value[1]
        return f"/apis/{version}" if "/" in version else f"/api/{version}"

    @property
    def plural(self) -> str:
        return self.value[3]

    @property
    def contents(self) -> tuple[str, ...]:
        return self.value[4]


USAGE_LABELS = {"app.kubernetes.io/name": "sandlot", "app.kubernetes.io/component": "usage"}
_USAGE_NAME = re.compile(r"sandlot-usage-([0-9]{1,9})-.+")
_USAGE_DAY = "sandlot.dev/usage-day"
_USAGE_BYTES = 64 << 20  # unpacked; gateways unpack it, too


@dataclass(frozen=True, slots=True)
class Item:
    """One resource without what the API server adds to it."""

    kind: Kept
    body: Mapping[str, Any]

    @property
    def doc(self) -> Doc:
        return Doc(self.body)

    @property
    def label(self) -> str:
        return f"{self.kind.word} {self.doc.namespace}/{self.doc.name}"

    @property
    def collection(self) -> str:
        """Return the path of its namespace's resources of this kind."""
        return f"{self.kind.base}/namespaces/{quote(self.doc.namespace)}/{self.kind.plural}"

    @property
    def path(self) -> str:
        return f"{self.collection}/{quote(self.doc.name)}"

    @property
    def content(self) -> dict[str, Any]:
        return content(self.kind, self.doc)


def content(kind: Kept, doc: Doc) -> dict[str, Any]:
    """Return the fields that a restore brings back."""
    return {name: doc.raw[name] for name in kind.contents if doc.raw.get(name)}


def item(kind: Kept, found: Doc) -> Item:
    """Return what is kept of a resource: no identity, owners, finalizers or status, which belong to what is gone."""
    _, version, name, _, _ = kind.value
    metadata: dict[str, Any] = {"name": found.name, "namespace": found.namespace}
    annotations = {
        key: text for key, text in found.pairs("metadata", "annotations").items() if key != _APPLIED
    }
    metadata |= {"labels": found.labels} if found.labels else {}
    metadata |= {"annotations": annotations} if annotations else {}
    return Item(kind, {"apiVersion": version, "kind": name, "metadata": metadata, **content(kind, found)})


def is_name(text: str) -> bool:
    """Return whether a resource can have this name."""
    return _NAME.fullmatch(text) is not None


def parsed(raw: Mapping[str, Any], release: Release) -> Item:
    """Return an item of a file, which may be hostile: only what a backup of this release may have. Raises BadBackup."""
    doc = Doc(raw)
    label = ascii(
        f"{doc.text('kind')} {doc.namespace}/{doc.name}"[:200]
    )  # a terminal obeys what is in it otherwise
    kind = next((one for one in Kept if (doc.text("apiVersion"), doc.text("kind")) == one.value[1:3]), None)
    if kind is Kept.USAGE and RUN_LABELS.items() <= doc.labels.items():
        kind = Kept.RUN
    if kind is None:
        raise BadBackup(f"the backup has {label}, a kind that no backup has: do not restore this file")
    if not is_name(doc.name):
        raise BadBackup(f"the backup has {label}, an invalid name: do not restore this file")
    if doc.namespace not in _namespaces(kind, release):
        raise BadBackup(f"the backup has {label}, outside of its release: do not restore this file")
    if kind is Kept.SECRET and doc.text("type") not in SECRET_TYPES:
        raise BadBackup(f"the backup has {label} of the type {doc.text('type')!r}: do not restore this file")
    if kind is Kept.USAGE and not (is_usage(doc) and _has_sums(doc)):
        raise BadBackup(f"the backup has {label}, which has no usage: do not restore this file")
    if kind is Kept.RUN and not is_run(doc):
        raise BadBackup(f"the backup has {label}, which is no lease of a run: do not restore this file")
    return item(kind, doc)


def is_usage(doc: Doc) -> bool:
    """Return whether a ConfigMap is one of those that gateways make for usage."""
    named = _USAGE_NAME.fullmatch(doc.name)
    wanted = USAGE_LABELS | {_USAGE_DAY: named[1] if named else ""}
    return named is not None and wanted.items() <= doc.labels.items()


def _has_sums(doc: Doc) -> bool:
    """Return whether it has sums and nothing else, and a gateway can unpack them."""
    if doc.raw.get("data") or set(doc.doc("binaryData").raw) != {"sums"}:
        return False
    unpacking = zlib.decompressobj()
    try:
        unpacking.decompress(base64.b64decode(doc.text("binaryData", "sums"), validate=True), _USAGE_BYTES)
    except (ValueError, zlib.error):
        return False
    return unpacking.eof


def _namespaces(kind: Kept, release: Release) -> tuple[str, ...]:
    return (release.namespace, release.sandboxes) if kind is Kept.SECRET else (release.sandboxes,)
