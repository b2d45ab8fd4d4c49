"""The file of a backup: an archive whose manifest has the format's version and the digests of its other members."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..doc import Doc
from ..release import Release
from .items import BadBackup, Item, Kept, is_name, parsed
from .members import (
    MANIFEST,
    MOST_BYTES,
    RESOURCES,
    SECRETS,
    VALUES,
    document,
    lines,
    members_of,
)

FORMAT = "sandlot-backup"
VERSION = 2
_WITHOUT_RUNS = 1  # the format before; command lines of then read a backup that has no run
_TIME = re.compile(r"[-0-9]{10}T[:0-9]{8}Z")


@dataclass(frozen=True, slots=True)
class Backup:
    """`values`: those given to Helm; None: Helm has no record of the release. `lacking`: Secrets that are not in it.

    `status`: Helm's for the revision that has these values, such as `deployed`.
    """

    release: Release
    created: str  # by the API server's clock
    sandlot: str  # the version of the command line that wrote it
    chart: str
    values: Mapping[str, Any] | None
    items: tuple[Item, ...]
    with_secrets: bool
    lacking: tuple[str, ...] = ()
    status: str = ""

    @property
    def counts(self) -> dict[str, int]:
        return {kind.word: sum(one.kind is kind for one in self.items) for kind in Kept}


def write(file: BinaryIO, backup: Backup) -> None:
    """Write it, and have the disk keep it. Raises BadBackup."""
    resources = [one.body for one in backup.items if one.kind is not Kept.SECRET]
    secrets = [one.body for one in backup.items if one.kind is Kept.SECRET]
    written = {RESOURCES: lines(resources)}
    if backup.values is not None:
        written[VALUES] = document(backup.values)
    if secrets:
        written[SECRETS] = lines(secrets)
    for name, data in written.items():
        if len(data) > MOST_BYTES[name]:
            raise BadBackup(
                f"the backup's {name} would have {len(data)} bytes, more than a restore reads ({MOST_BYTES[name]}): "
                "lower gateway.config.usageKeep, by which gateways remove old usage"
            )
    release = backup.release
    manifest = {
        "format": FORMAT,
        "version": VERSION if backup.counts[Kept.RUN.word] else _WITHOUT_RUNS,
        "sandlot": backup.sandlot,
        "created": backup.created,
        "release": {"name": release.name, "namespace": release.namespace, "sandboxes": release.sandboxes},
        "chart": backup.chart,
        "helm_status": backup.status,
        "with_secrets": backup.with_secrets,
        "secrets_not_included": list(backup.lacking),
        "counts": backup.counts,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in written.items()},
    }
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in ({MANIFEST: document(manifest)} | written).items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    file.flush()
    os.fsync(file.fileno())


def read(path: Path) -> Backup:
    """Read it whole. Raises BadBackup, and OSError."""
    members, found = members_of(path)
    manifest = Doc(_mapping(members, MANIFEST))
    if manifest.text("format") != FORMAT:
        raise BadBackup(f"{path} is no backup of Sandlot: name a file that `sandlot backup` wrote")
    if manifest.value("version") not in (_WITHOUT_RUNS, VERSION):
        raise BadBackup(
            f"{path} is a backup of the format {manifest.text('version')[:20]!r}, and this command line reads "
            f"{VERSION}: use the command line of {manifest.text('sandlot')[:40]!a}"
        )
    digests = manifest.pairs("sha256")
    del found[MANIFEST]
    if digests != found:
        wrong = sorted(name for name in digests.keys() | found.keys() if digests.get(name) != found.get(name))
        raise BadBackup(f"{path} is damaged, {', '.join(wrong)[:200]!a}: use another backup")
    return _backup(manifest, members)


def _backup(manifest: Doc, members: Mapping[str, object]) -> Backup:
    names = (manifest.text("release", name) for name in ("name", "namespace", "sandboxes"))
    release = Release(*names)
    if not all(map(is_name, (release.name, release.namespace, release.sandboxes))):
        raise BadBackup("the backup does not name its release: use another one")
    created = manifest.text("created")
    if not _TIME.fullmatch(created):
        raise BadBackup("the backup does not say when it was made: use another one")
    values = _mapping(members, VALUES) if VALUES in members else None
    bodies = _list(members, RESOURCES)
    if SECRETS in members:
        bodies += _list(members, SECRETS)
    items = [parsed(cast(dict[str, Any], one) if isinstance(one, dict) else {}, release) for one in bodies]
    return Backup(
        release,
        created,
        manifest.text("sandlot"),
        manifest.text("chart"),
        values,
        tuple(sorted(items, key=order)),
        manifest.value("with_secrets") is True,
        tuple(manifest.texts("secrets_not_included")),
        manifest.text("helm_status"),
    )


def order(item: Item) -> int:
    """Return the place of an item in a restore."""
    return list(Kept).index(item.kind)


def _mapping(members: Mapping[str, object], name: str) -> dict[str, Any]:
    if isinstance(value := members.get(name), dict):
        return cast(dict[str, Any], value)
    raise BadBackup(f"the backup has no valid {name}: use another one")


def _list(members: Mapping[str, object], name: str) -> list[object]:
    if isinstance(value := members.get(name), list):
        return cast(list[object], value)
    raise BadBackup(f"the backup has no valid {name}: use another one")


def summary(counts: Mapping[str, int]) -> str:
    """Return the numbers of a backup's items in words."""
    return ", ".join(f"{word} {count}" for word, count in counts.items())
