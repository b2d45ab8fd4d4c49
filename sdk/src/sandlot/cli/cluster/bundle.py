"""Writes a support bundle: one archive, without secrets, bounded in size and time, with a list of what it lacks."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from . import report, sources
from .api import Api, Listing, Unread
from .doc import Doc
from .finding import Finding
from .kubectl import Kubectl
from .redaction import Redactor
from .world import Kind, World

MOST_BYTES = 64 << 20  # of all files together, before compression
_LEAST = sources.SMALL_LOG  # with less room than this, nothing more is read
_AT_ONCE = 8
_ABOUT = """\
A support bundle of Sandlot: `sandlot support-bundle` wrote it.

doctor.txt, doctor.json   the report of `sandlot doctor --cluster`
versions.json             versions of this command line, kubectl, the API server and the release's charts
resources/                resources of the release, by namespace; Secrets without their data
logs/                     the last lines of gateways, controllers, some node agents and some sidecars
metrics/                  the metrics of gateways, controllers and some node agents
not-included.txt          what could not be read, or had no room

Removed are the data of Secrets, tokens, values of variables and fields with telling names, and what looks like a
key. Names of images, nodes, tenants and labels remain: look through the files before you pass them on.
"""


@dataclass(slots=True)
class Bundle:
    """One archive being written."""

    tar: tarfile.TarFile
    redactor: Redactor
    root: str
    left: int = MOST_BYTES
    lacking: list[str] = field(default_factory=list[str])

    def add(self, path: str, content: str | Unread) -> None:
        """Add a file without its secrets, or note why it is not there."""
        if isinstance(content, Unread):
            self.note(path, content.reason)
            return
        data = self._clean(path, content).encode()
        if len(data) > self.left:
            self.note(path, f"{len(data)} bytes, more than the bundle has room for")
            return
        self.left -= len(data)
        self._write(path, data)

    def note(self, what: str, reason: str) -> None:
        """List what is not there, or could not be removed from the rest."""
        self.lacking.append(f"{what}: {self.redactor.text(reason)}")

    def read(self, source: sources.Source) -> str | Unread:
        """Read it, unless there would be no room for it."""
        return Unread("the bundle is full") if self.left < _LEAST else source[1]()

    def close(self) -> None:
        text = "".join(f"{line}\n" for line in self.lacking) or "everything is included\n"
        self._write("not-included.txt", text.encode())

    def _clean(self, path: str, content: str) -> str:
        if not path.endswith(".json"):
            return self.redactor.text(content)
        value = self.redactor.value(json.loads(content))
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"

    def _write(self, path: str, data: bytes) -> None:
        member = tarfile.TarInfo(f"{self.root}/{path}")
        member.size, member.mtime, member.mode = len(data), int(time.time()), 0o600
        self.tar.addfile(member, io.BytesIO(data))


@contextmanager
def created(path: Path) -> Generator[BinaryIO]:
    """Make a file for its owner alone, never over another; remove it if it does not become whole."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)  # else a second try with this name would be refused
        raise


def write(
    file: BinaryIO,
    *,
    root: str,
    kubectl: Kubectl,
    api: Api,
    world: World,
    findings: Sequence[Finding],
) -> list[str]:
    """Write the archive; return what it lacks. After the deadline of `api` nothing more is read."""
    secrets = sources.secrets(api, world)
    redactor = Redactor(sources.known_secrets(world, secrets), sources.instance_tokens(world))
    with tarfile.open(fileobj=file, mode="w:gz") as tar, ThreadPoolExecutor(_AT_ONCE) as pool:
        bundle = Bundle(tar, redactor, root)
        bundle.add("README.txt", _ABOUT)
        bundle.add("doctor.txt", "".join(f"{line}\n" for line in report.lines(world, findings)))
        bundle.add("doctor.json", json.dumps(report.document(world, findings)))
        bundle.add("versions.json", json.dumps(_versions(world)))
        for path, content in sorted(_resources(world), key=_bytes):
            bundle.add(path, content)
        for namespace, found in secrets.items():
            if isinstance(found, Unread):
                bundle.note(f"values of Secrets in {namespace}", found.reason)
        wanted = list(sources.wanted(kubectl, api, world))
        for (path, _), content in zip(wanted, pool.map(bundle.read, wanted), strict=True):
            bundle.add(path, content)
        bundle.close()
    return bundle.lacking


def _resources(world: World) -> Iterator[tuple[str, str | Unread]]:
    """Yield what the checks have read."""
    for (kind, namespace), found in world.readings.items():
        if kind is Kind.EVENTS:
            continue  # of these the bundle has all, not only warnings
        path = f"resources/{namespace or 'cluster'}/{kind.plural}.json"
        yield path, json.dumps([one.raw for one in found.items]) if isinstance(found, Listing) else found


def _bytes(resource: tuple[str, str | Unread]) -> int:
    return len(resource[1]) if isinstance(resource[1], str) else 0


def _versions(world: World) -> dict[str, object]:
    deployments = world.readings.get((Kind.DEPLOYMENTS, world.release.namespace))
    items = deployments.items if isinstance(deployments, Listing) else []
    return {
        "sandlot": world.tool.version,
        "kubectl": world.tool.kubectl,
        "kubernetes": world.tool.server,
        "charts": sorted(set(_labels(items, "helm.sh/chart"))),
        "release": sorted(set(_labels(items, "app.kubernetes.io/version"))),
    }


def _labels(items: Iterable[Doc], name: str) -> Iterator[str]:
    return (one.labels[name] for one in items if name in one.labels)
