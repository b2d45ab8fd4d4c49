"""Reads what must last of an installation: all of it, or nothing is written."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from sandlot._version import __version__

from .. import release as releases
from ..api import Api, Unread
from ..doc import Doc, environment, json_of, walk
from ..kubectl import CannotRun
from ..release import Release
from ..world import Kind
from .archive import Backup
from .items import SECRET_TYPES, USAGE_LABELS, Item, Kept, item
from .leases import RUN_LABELS, is_run

_HELM = "helm.sh/release.v1"
# Of the chart's own Secrets, the one that nothing outside of the cluster knows: each installation makes another.
_MADE_ANEW = "node-agent"
_REFERENCES = (
    "secretKeyRef",
    "secretRef",
    "secret",
)  # of a variable, of all variables, of a projected volume
_ENDED = "uninstalled"


class _Helm(NamedTuple):
    """What Helm recorded: `values` that it was given (None: no record), version of the chart, state of the revision."""

    values: Mapping[str, Any] | None
    chart: str
    status: str


def collect(api: Api, *, namespace: str | None, name: str | None, with_secrets: bool) -> Backup:
    """Read the only release, or that of this namespace and name. Raises CannotRun."""
    _, date = api.first("/version")
    deployments = _listed(api, Kind.DEPLOYMENTS, namespace, selector=releases.SELECTOR)
    release = releases.find(deployments, namespace=namespace, name=name)
    workloads = _workloads(api, release)
    helm = _helm(api, release)
    leases = _items(api, Kept.RUN, release.sandboxes, selector=_selector(RUN_LABELS))
    items = [
        *_items(api, Kept.USAGE, release.sandboxes, selector=_selector(USAGE_LABELS)),
        *(one for one in leases if is_run(one.doc)),
        *_items(api, Kept.POOL, release.sandboxes),
        *_items(api, Kept.WARMUP, release.sandboxes),
    ]
    wanted = _secrets(release, workloads)
    lacking = [f"{space}/{secret}" for space, secret in wanted]
    if with_secrets:
        found = [one for space, secret in wanted if (one := _secret(api, space, secret)) is not None]
        items += found
        have = {f"{one.doc.namespace}/{one.doc.name}" for one in found}
        lacking = [one for one in lacking if one not in have]
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(date or time.time()))
    return Backup(
        release,
        created,
        __version__,
        helm.chart,
        helm.values,
        tuple(items),
        with_secrets,
        tuple(lacking),
        helm.status,
    )


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{label}={value}" for label, value in labels.items())


def _items(api: Api, kind: Kept, namespace: str, *, selector: str = "") -> Iterator[Item]:
    found = api.list(kind.base, kind.plural, namespace=namespace, selector=selector)
    if isinstance(found, Unread):
        raise _unread(kind.plural, namespace, found)
    for one in found.items:
        if not one.text("metadata", "deletionTimestamp"):
            yield item(kind, one)


def _listed(
    api: Api, kind: Kind, namespace: str | None, *, selector: str = "", fields: str = ""
) -> Sequence[Doc]:
    found = api.list(kind.base, kind.plural, namespace=namespace, selector=selector, fields=fields)
    if isinstance(found, Unread):
        raise _unread(kind.plural, namespace, found)
    return found.items


def _workloads(api: Api, release: Release) -> list[Doc]:
    found = [*_listed(api, Kind.DEPLOYMENTS, release.namespace, selector=release.selector)]
    found += _listed(api, Kind.DAEMON_SETS, release.namespace, selector=release.selector)
    found += _listed(api, Kind.DAEMON_SETS, release.sandboxes, selector=release.selector)
    ingresses = api.list(
        "/apis/networking.k8s.io/v1", "ingresses", namespace=release.namespace, selector=release.selector
    )
    if isinstance(ingresses, Unread):
        raise _unread("ingresses", release.namespace, ingresses)
    return found + ingresses.items


def _secrets(release: Release, workloads: Sequence[Doc]) -> list[tuple[str, str]]:
    """Return namespace and name of each Secret that the release uses and an operator or the chart made."""
    wanted: set[tuple[str, str]] = set()
    for workload in workloads:
        for part in walk(dict(workload.raw)):
            here = Doc(part)
            names = [here.text("secretName"), *(here.text(field, "name") for field in _REFERENCES)]
            names += [one.text("name") for one in here.docs("imagePullSecrets")]
            wanted |= {(workload.namespace, one) for one in names if one}
        if workload.component == "controller":
            pulled = json_of(environment(workload).get("SANDLOT_IMAGE_PULL_SECRETS", "[]"), [])
            wanted |= {(release.sandboxes, str(one)) for one in pulled}
    return sorted(wanted)


def _secret(api: Api, namespace: str, name: str) -> Item | None:
    """Return a Secret, None if it does not exist, or nobody needs to have it back. Raises CannotRun."""
    found = api.get(f"{Kept.SECRET.base}/namespaces/{namespace}/{Kept.SECRET.plural}/{name}")
    if isinstance(found, Unread):
        if found.missing:
            return None
        raise _unread(name, namespace, found)
    if found.component == _MADE_ANEW or found.text("type") not in SECRET_TYPES:
        return None
    return item(Kept.SECRET, found)


def _helm(api: Api, release: Release) -> _Helm:
    """Return the newest revision, whether it went well or not: its values are the last that Helm applied.

    One that is pending counts only if no other exists: it may apply nothing.
    """
    records = _listed(
        api,
        Kind.SECRETS,
        release.namespace,
        selector=f"owner=helm,name={release.name},status!={_ENDED}",
        fields=f"type={_HELM}",
    )
    if not records:
        return _Helm(None, "", "")
    newest = max(records, key=_age)
    status = newest.labels.get("status", "")
    try:
        packed = base64.b64decode(base64.b64decode(newest.text("data", "release")))
        record = Doc(cast(dict[str, Any], json.loads(gzip.decompress(packed))))
    except (ValueError, binascii.Error, OSError, EOFError, zlib.error) as error:
        raise CannotRun(
            f"Helm's record {newest.name} cannot be read ({type(error).__name__}): compare `helm get values`"
        ) from error
    chart = f"{record.text('chart', 'metadata', 'name')}-{record.text('chart', 'metadata', 'version')}"
    return _Helm(record.doc("config").raw, chart, status)


def _age(record: Doc) -> tuple[bool, int]:
    labels = record.labels
    return not labels.get("status", "").startswith("pending-"), int(labels.get("version", "0"))


def _unread(what: str, namespace: str | None, found: Unread) -> CannotRun:
    where = f"namespace {namespace}" if namespace else "the cluster"
    return CannotRun(
        f"cannot read {what} of {where}: {found.reason}: a backup needs the right to read all of the release"
    )
