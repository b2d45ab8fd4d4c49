"""The file of a backup: an archive of JSON documents whose manifest has the format's version and their digests."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..doc import Doc
from ..release import Release
from .items import BadBackup, Item, Kept, is_name, parsed

FORMAT = "sandlot-backup"
VERSION = 1
MOST_BYTES = 512 << 20  # unpacked; a damaged or hostile file must not take all memory
_TIME = re.compile(r"[-0-9]{10}T[:0-9]{8}Z")
_MANIFEST, _VALUES, _RESOURCES, _SECRETS = "manifest.json", "values.json", "resources.json", "secrets.json"
_NAMES = frozenset({_MANIFEST, _VALUES, _RESOURCES, _SECRETS})


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
    documents = {
        _VALUES: backup.values,
        _RESOURCES: [one.body for one in backup.items if one.kind is not Kept.SECRET],
        _SECRETS: [one.body for one in backup.items if one.kind is Kept.SECRET] or None,
    }
    members = {name: _json(value) for name, value in documents.items() if value is not None}
    if (size := sum(map(len, members.values()))) > MOST_BYTES - (1 << 20):
        raise BadBackup(
            f"the backup would have {size} bytes, more than a restore reads ({MOST_BYTES}): "
            "lower gateway.config.usageKeep, by which gateways remove old usage"
        )
    release = backup.release
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "sandlot": backup.sandlot,
        "created": backup.created,
        "release": {"name": release.name, "namespace": release.namespace, "sandboxes": release.sandboxes},
        "chart": backup.chart,
        "helm_status": backup.status,
        "with_secrets": backup.with_secrets,
        "secrets_not_included": list(backup.lacking),
        "counts": backup.counts,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in ({_MANIFEST: _json(manifest)} | members).items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    file.flush()
    os.fsync(file.fileno())


def read(path: Path) -> Backup:
    """Read it whole. Raises BadBackup, and OSError."""
    members = _members(path)
    manifest = Doc(_mapping(members, _MANIFEST))
    if manifest.text("format") != FORMAT:
        raise BadBackup(f"{path} is no backup of Sandlot: name a file that `sandlot backup` wrote")
    if manifest.value("version") != VERSION:
        raise BadBackup(
            f"{path} is a backup of the format {manifest.text('version')[:20]!r}, and this command line reads "
            f"{VERSION}: use the command line of {manifest.text('sandlot')[:40]!a}"
        )
    digests = manifest.pairs("sha256")
    found = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != _MANIFEST}
    if digests != found:
        wrong = sorted(name for name in digests.keys() | found.keys() if digests.get(name) != found.get(name))
        raise BadBackup(f"{path} is damaged, {', '.join(wrong)[:200]!a}: use another backup")
    return _backup(manifest, members)


def _backup(manifest: Doc, members: Mapping[str, bytes]) -> Backup:
    names = (manifest.text("release", name) for name in ("name", "namespace", "sandboxes"))
    release = Release(*names)
    if not all(map(is_name, (release.name, release.namespace, release.sandboxes))):
        raise BadBackup("the backup does not name its release: use another one")
    created = manifest.text("created")
    if not _TIME.fullmatch(created):
        raise BadBackup("the backup does not say when it was made: use another one")
    values = _mapping(members, _VALUES) if _VALUES in members else None
    bodies = _list(members, _RESOURCES)
    if _SECRETS in members:
        bodies += _list(members, _SECRETS)
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


def _members(path: Path) -> dict[str, bytes]:
    """Return the documents by name. Nothing is unpacked to the disk."""
    try:
        with gzip.open(path) as file:
            unpacked = file.read(MOST_BYTES + 1)
        if len(unpacked) > MOST_BYTES:
            raise BadBackup(f"{path} has more than {MOST_BYTES} bytes unpacked: use another backup")
        if not unpacked.strip(b"\0"):
            raise EOFError("it is empty")
        return dict(_entries(path, unpacked))
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise BadBackup(
            f"{path} is no whole backup of Sandlot ({error}): use another one, or copy it again"
        ) from error


def _entries(path: Path, unpacked: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield plain files only. `tarfile.open` would obey extended headers: sparse files, other sizes, other names."""
    start, seen = 0, set[str]()
    while (header := unpacked[start : start + tarfile.BLOCKSIZE]).strip(b"\0"):
        entry = tarfile.TarInfo.frombuf(header, "utf-8", "replace")
        start += tarfile.BLOCKSIZE
        known = entry.name in _NAMES - seen and entry.type == tarfile.REGTYPE
        if not known or not 0 <= entry.size <= len(unpacked) - start:
            raise BadBackup(f"{path} has an entry that no backup has: do not restore this file")
        seen.add(entry.name)
        yield entry.name, unpacked[start : start + entry.size]
        start += -(-entry.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _mapping(members: Mapping[str, bytes], name: str) -> dict[str, Any]:
    if isinstance(value := _document(members, name), dict):
        return cast(dict[str, Any], value)
    raise BadBackup(f"the backup has no valid {name}: use another one")


def _list(members: Mapping[str, bytes], name: str) -> list[object]:
    if isinstance(value := _document(members, name), list):
        return cast(list[object], value)
    raise BadBackup(f"the backup has no valid {name}: use another one")


def _document(members: Mapping[str, bytes], name: str) -> object:
    try:
        return json.loads(members[name])
    except (KeyError, ValueError, RecursionError):
        return None


def _json(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def summary(counts: Mapping[str, int]) -> str:
    """Return the numbers of a backup's items in words."""
    return ", ".join(f"{word} {count}" for word, count in counts.items())
