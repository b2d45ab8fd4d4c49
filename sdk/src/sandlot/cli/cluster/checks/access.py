"""Checks how the cluster was reached, and who may do what in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ..api import Unread
from ..finding import Finding, ok, problem, unchecked
from ..world import Review, World, place

OLDEST = (1, 30)  # of Kubernetes, as in the chart's kubeVersion


def tool(world: World) -> Iterator[Finding]:
    tool = world.tool
    reached = f"{tool.kubectl} at {tool.program}, context {tool.context}; API server {tool.server}"
    found = re.match(r"v?(\d+)\.(\d+)", tool.server)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        yield problem(
            "kubectl", f"{reached}, older than {oldest}", f"upgrade the cluster to {oldest} or newer"
        )
    else:
        yield ok("kubectl", reached)


def caller(world: World) -> Iterator[Finding]:
    denied = [
        f"list {place(kind, namespace)}"
        for (kind, namespace), reading in world.readings.items()
        if isinstance(reading, Unread) and reading.denied
    ]
    if isinstance(world.requested, Unread) and world.requested.denied:
        denied.append("list pods of all namespaces")
    denied += [_words(one) for one in world.reviews if one.who == "you" and one.allowed is not True]
    if denied:
        yield unchecked(
            "your rights",
            f"you may not {'; '.join(denied)}",
            "what needs these is not checked: ask for these rights, or let an administrator of the cluster run this",
        )
    else:
        yield ok("your rights", "you may read all that these checks need")


def accounts(world: World) -> Iterator[Finding]:
    for who in ("gateway", "controller"):
        reviews = [one for one in world.reviews if one.who == who]
        if not reviews:
            continue
        name = f"rights of the {who}"
        unread = [one.allowed for one in reviews if isinstance(one.allowed, Unread)]
        if unread:
            advice = (
                "let somebody run this who may create subjectaccessreviews, such as a cluster administrator"
            )
            yield unchecked(name, unread[0].reason, advice)
        elif missing := [one for one in reviews if not one.allowed]:
            yield problem(
                name,
                f"its service account may not {'; '.join(_grouped(missing))}",
                "restore the chart's roles and bindings: helm upgrade",
            )
        else:
            yield ok(name, "its service account may do what it must")


def _words(review: Review) -> str:
    where = f" in {review.namespace}" if review.namespace else ""
    return f"{review.verb} {review.resource}{where}"


def _grouped(reviews: list[Review]) -> Iterator[str]:
    verbs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in reviews:
        verbs[one.resource, one.namespace].append(one.verb)
    for (resource, namespace), several in verbs.items():
        yield f"{', '.join(several)} {resource}" + (f" in {namespace}" if namespace else "")
