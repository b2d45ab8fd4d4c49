"""Brings back what a backup has: creates what is missing, and changes nothing that exists unless asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from .. import release as releases
from ..api import Api, Unread
from ..doc import Doc
from ..kubectl import CannotRun
from ..options import Options
from ..release import Release
from ..world import Kind
from .items import Item, Kept, content


class Did(StrEnum):
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    LATER = "later"  # its namespace is the chart's, which is not installed yet
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    item: Item
    did: Did
    detail: str = ""


def check_target(api: Api, release: Release, options: Options, *, only_secrets: bool) -> None:
    """Check that this cluster has the release, or may get it. Raises CannotRun."""
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
    elif found.items:
        names = sorted({one.labels.get("app.kubernetes.io/instance", "") for one in found.items})
        raise CannotRun(
            f"{named}, where {', '.join(names)} is installed: choose the cluster with --context, "
            "or install the release under its own name"
        )
    elif not only_secrets:
        raise CannotRun(
            f"{named}, which is not installed here: restore the Secrets with --only-secrets, "
            "install the chart with the backup's values.json, then restore the rest"
        )


def restore(
    api: Api, items: tuple[Item, ...], *, release: Release, overwrite: bool, dry_run: bool, only_secrets: bool
) -> Iterator[Outcome]:
    """Restore one after the other. `dry_run`: the API server checks all of it, and stores nothing."""
    query = "?dryRun=All" if dry_run else ""
    spaces: dict[str, bool] = {}
    for item in items:
        if only_secrets and item.kind is not Kept.SECRET:
            continue
        namespace = item.doc.namespace
        if only_secrets and namespace == release.sandboxes:
            if namespace not in spaces:
                spaces[namespace] = isinstance(api.get(f"{Kind.NAMESPACES.base}/namespaces/{namespace}"), Doc)
            if not spaces[namespace]:
                yield Outcome(
                    item, Did.LATER, f"namespace {namespace} comes with the chart: restore again then"
                )
                continue
        yield _one(api, item, overwrite=overwrite, query=query)


def _one(api: Api, item: Item, *, overwrite: bool, query: str) -> Outcome:
    there = api.get(item.path)
    if isinstance(there, Unread):
        if not there.missing:
            return Outcome(item, Did.FAILED, f"cannot be read: {there.reason}")
        return _stored(item, Did.CREATED, api.post(item.collection + query, item.body))
    if there.text("metadata", "deletionTimestamp"):
        return Outcome(item, Did.FAILED, "is being deleted: restore again once it is gone")
    if content(item.kind, there) == item.content:
        return Outcome(item, Did.UNCHANGED)
    if not overwrite:
        return Outcome(item, Did.KEPT, "exists with other content: --overwrite replaces it")
    return _stored(item, Did.REPLACED, api.put(item.path + query, _replaced(item, there)))


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
        return Outcome(item, Did.FAILED, answer.reason)
    if lost := next(_lacking(item.content, content(item.kind, answer)), None):
        return Outcome(
            item, Did.FAILED, f"stored without {lost}: apply the resource definitions of the backup's version"
        )
    return Outcome(item, did)


def _lacking(wanted: object, there: object, path: str = "") -> Iterator[str]:
    """Yield the fields that the API server has dropped or changed; it may add defaults."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        inside = cast(Mapping[str, object], there)
        for name, value in cast(Mapping[str, object], wanted).items():
            yield from _lacking(value, inside.get(name), f"{path}.{name}" if path else name)
    elif wanted != there:
        yield path
