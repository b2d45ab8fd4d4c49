"""Brings back what a backup has: creates what is missing, and changes nothing that exists unless asked to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast

from sandlot.cli.output import printable

from .. import release as releases
from ..api import Api, Unread
from ..doc import Doc
from ..kubectl import CannotRun
from ..options import Options
from ..release import Release
from ..world import Kind
from .items import Item, Kept, content, is_usage
from .leases import renewed


class Did(StrEnum):
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    LATER = "later"  # its namespace is that of the sandboxes, and the chart is not installed yet
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    item: Item
    did: Did
    detail: str = ""  # printable


def has_release(api: Api, release: Release, options: Options, *, only_secrets: bool) -> bool:
    """Return whether this cluster has the release; without it, it may get Secrets. Raises CannotRun."""
    named = f"the backup is of the release {release.name} in namespace {release.namespace}"
    for given, own, option in (
        (options.namespace, release.namespace, "--namespace"),
        (options.release, release.name, "--release"),
    ):
        if given not in (None, own):
            raise CannotRun(f"{named}, and {option} is {given}: restore it into its own release")
    api.first("/version")
    found = api.list(*Kind.DEPLOYMENTS.value, namespace=release.namespace, selector=releases.SELECTOR)
    if isinstance(found, Unread):
        raise CannotRun(f"the Deployments cannot be listed: {found.reason}: ask for the right to read them")
    ours = [one for one in found.items if one.labels.get("app.kubernetes.io/instance") == release.name]
    if ours:
        there = releases.find(ours, namespace=release.namespace, name=release.name)
        if there.sandboxes != release.sandboxes:
            raise CannotRun(
                f"{named}, whose sandboxes were in {release.sandboxes}, and are in {there.sandboxes} here: "
                "install the chart with the backup's values.json"
            )
        return True
    if found.items:
        names = sorted({one.labels.get("app.kubernetes.io/instance", "") for one in found.items})
        raise CannotRun(
            f"{named}, where {', '.join(names)} is installed: choose the cluster with --context, "
            "or install the release under its own name"
        )
    if not only_secrets:
        raise CannotRun(
            f"{named}, which is not installed here: restore the Secrets with --only-secrets, "
            "install the chart with the backup's values.json, then restore the rest"
        )
    if options.namespace is None:
        raise CannotRun(
            f"{named}, which is not installed here: if the Secrets shall go there, name it with --namespace"
        )
    return False


def restore(
    api: Api,
    items: tuple[Item, ...],
    *,
    release: Release,
    installed: bool,
    overwrite: bool,
    dry_run: bool,
    only_secrets: bool,
) -> Iterator[Outcome]:
    """Restore one after the other. `dry_run`: the API server checks all of it, and stores nothing."""
    query = "?dryRun=All" if dry_run else ""
    _, date = api.first("/version")
    ahead = 0.0 if date is None else date - time.time()  # gateways go by the API server's clock, too
    for item in items:
        if only_secrets and item.kind is not Kept.SECRET:
            continue
        if not installed and item.doc.namespace == release.sandboxes:
            # Only the file names this namespace: Secrets must not get into one of something else.
            yield Outcome(item, Did.LATER, "restore again when the chart is installed")
            continue
        if item.kind is Kept.RUN:
            yield _lease(api, item, query=query, now=time.time() + ahead)
            continue
        # A Secret that is replaced brings keys back that were removed because they leaked.
        replaces = overwrite and (only_secrets or item.kind is not Kept.SECRET)
        yield _one(api, item, overwrite=replaces, query=query)


def _one(api: Api, item: Item, *, overwrite: bool, query: str) -> Outcome:
    there = api.get(item.path)
    if isinstance(there, Unread):
        if not there.missing:
            return _failed(item, f"cannot be read: {there.reason}")
        return _stored(item, Did.CREATED, api.post(item.collection + query, item.body))
    if there.text("metadata", "deletionTimestamp"):
        return _failed(item, "is being deleted: restore again once it is gone")
    if item.kind is Kept.USAGE and not is_usage(there):
        return _failed(item, "exists without the labels of usage: delete it, or give it another name")
    if content(item.kind, there) == item.content:
        return Outcome(item, Did.UNCHANGED)
    if not overwrite:
        option = "--only-secrets --overwrite" if item.kind is Kept.SECRET else "--overwrite"
        return Outcome(item, Did.KEPT, f"exists with other content: {option} replaces it")
    return _stored(item, Did.REPLACED, api.put(item.path + query, _replaced(item, there)))


def _lease(api: Api, item: Item, *, query: str, now: float) -> Outcome:
    """Create a lease that is missing. One that is there is newer: an earlier epoch would stop the holder that has it."""
    there = api.get(item.path)
    if not isinstance(there, Unread):
        return Outcome(item, Did.UNCHANGED)
    if not there.missing:
        return _failed(item, f"cannot be read: {there.reason}")
    begun = replace(item, body={**item.body, **renewed(item.doc, now=now)})
    return _stored(begun, Did.CREATED, api.post(begun.collection + query, begun.body))


def _replaced(item: Item, there: Doc) -> dict[str, Any]:
    """Return the resource with the backup's content. Its resourceVersion has the API server refuse a change meanwhile."""
    metadata = dict(cast(dict[str, Any], there.raw["metadata"]))
    for name in ("labels", "annotations"):
        if merged := there.pairs("metadata", name) | item.doc.pairs("metadata", name):
            metadata[name] = merged
    rest = {name: value for name, value in there.raw.items() if name not in item.kind.contents}
    return {**rest, **item.content, "metadata": metadata}


def _stored(item: Item, did: Did, answer: Doc | Unread) -> Outcome:
    if isinstance(answer, Unread):
        return _failed(item, answer.reason)
    if lost := next(_lacking(item.content, content(item.kind, answer)), None):
        return _failed(item, f"stored without {lost}: apply the resource definitions of the backup's version")
    return Outcome(item, did)


def _failed(item: Item, why: str) -> Outcome:
    return Outcome(item, Did.FAILED, printable(why))


def _lacking(wanted: object, there: object, path: str = "") -> Iterator[str]:
    """Yield the fields that the API server has dropped or changed; it may add defaults."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        inside = cast(Mapping[str, object], there)
        for name, value in cast(Mapping[str, object], wanted).items():
            yield from _lacking(value, inside.get(name), f"{path}.{name}" if path else name)
    elif wanted != there:
        yield path
