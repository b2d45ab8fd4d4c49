"""Checks gateway, controller and the DaemonSets of the release: ready, one version, one leader."""

from __future__ import annotations

from collections.abc import Iterator

from .. import times
from ..api import Unread
from ..doc import environment
from ..finding import Finding, ok, problem, unchecked
from ..samples import samples
from ..waits import Wait, waits
from ..warnings import explained, warnings
from ..world import Kind, World
from .words import several

_ADVICE = {
    "image": "check image.registry, image.tag and image.pullSecrets of the chart's values, and that the image is pushed",
    "crash": "read its log: kubectl -n {namespace} logs {pod} --previous",
    "config": "create what the message names, then it starts by itself",
    "schedule": "free or add nodes, or change the selectors and tolerations of the chart's values",
    "start": "look at the pod's events: kubectl -n {namespace} describe pod {pod}",
}


def deployments(world: World) -> Iterator[Finding]:
    for component in ("gateway", "controller"):
        workload = world.workload(component)
        if workload is None:
            yield problem(
                f"deployment of the {component}",
                f"namespace {world.release.namespace} has none with the labels of release {world.release.name}",
                "restore it: helm upgrade",
            )
            continue
        name = f"deployment {workload.name}"
        wanted = workload.number("spec", "replicas") if "replicas" in workload.doc("spec").raw else 1
        have = workload.number("status", "readyReplicas")
        updated = workload.number("status", "updatedReplicas")
        if wanted and have >= wanted and updated >= wanted:
            yield ok(name, f"{have} of {wanted} ready")
            continue
        if not wanted:
            yield problem(
                name, "it is scaled to 0", f"scale it up, or set {component}.replicas and helm upgrade"
            )
            continue
        refused = workload.condition("ReplicaFailure")
        why = [refused.text("message")] if refused.text("status") == "True" else []
        found = [one for pod in world.pods(component) for one in waits(pod, now=world.now)]
        detail = f"{have} of {wanted} ready"
        if have >= wanted:
            detail += f", {updated} of the current template"
        advice = "correct what the message names" if why else "look at its pods' events and logs"
        told = warnings(world, world.release.namespace)
        yield problem(name, _said(detail, why, found, told), _advice(found, advice))


def daemon_sets(world: World) -> Iterator[Finding]:
    release = world.release
    found = world.list(Kind.DAEMON_SETS, release.sandboxes)
    needs_agent = "SANDLOT_NODE_AGENT_TOKEN_FILE" in world.settings("controller")
    if needs_agent and not any(one.component == "node-agent" for one in found):
        yield problem(
            "node agents",
            f"slots are enabled, and namespace {release.sandboxes} has no DaemonSet of node agents",
            "restore it: helm upgrade with nodeAgent.enabled",
        )
    for one in found:
        name = f"daemon set {one.name}"
        wanted = one.number("status", "desiredNumberScheduled")
        have = one.number("status", "numberReady")
        if not wanted:
            yield problem(
                name,
                "no node matches it",
                "check its nodeSelector in the chart's values against the nodes' labels",
            )
        elif have < wanted:
            waiting = [wait for pod in world.pods(one.component) for wait in waits(pod, now=world.now)]
            yield problem(
                name,
                _said(f"{have} of {wanted} ready", [], waiting, warnings(world, release.sandboxes)),
                _advice(
                    waiting, "look at its pods' events and logs; nodes that are not ready are listed below"
                ),
            )
        else:
            yield ok(name, f"{have} of {wanted} ready")


def versions(world: World) -> Iterator[Finding]:
    workload = world.workload("gateway")
    release = workload.labels.get("app.kubernetes.io/version", "") if workload is not None else ""
    if release not in ("", world.tool.version):
        yield unchecked(
            "version of this command line",
            f"it is {world.tool.version}, and the release {release}: it compares definitions and rights with its own",
            f"install sandlot=={release} for this check",
        )
    images: dict[str, tuple[str, str]] = {}
    for component in ("gateway", "controller"):
        workload = world.workload(component)
        containers = workload.docs("spec", "template", "spec", "containers") if workload is not None else []
        if workload is not None and containers:
            label = workload.labels.get("app.kubernetes.io/version", "")
            images[component] = containers[0].text("image"), label
            if sidecar := environment(workload).get("SANDLOT_SIDECAR_IMAGE"):
                images["sidecar"] = sidecar, label
    found = {component: _version(*one) for component, one in images.items()}
    digests = [component for component, (image, _) in images.items() if not _tag(image) and "@" in image]
    named = f", named by digest: {', '.join(digests)}" if digests else ""
    if len(set(found.values())) > 1:
        told = ", ".join(f"{component} {version}" for component, version in found.items())
        yield problem(
            "versions",
            f"the parts have several versions, though they depend on each other's protocols: {told}{named}",
            "set one image.tag, or none with the chart's image.digests, and helm upgrade",
        )
    elif found:
        yield ok("versions", f"all parts have the version {next(iter(found.values()))}{named}")


def leader(world: World) -> Iterator[Finding]:
    settings = world.settings("controller")
    name = settings.get("SANDLOT_LEASE_NAME", "")
    if not name:
        return
    leases = [one for one in world.list(Kind.LEASES, world.release.namespace) if one.name == name]
    holder = leases[0].text("spec", "holderIdentity") if leases else ""
    if not holder:
        what = "nobody holds it" if leases else "it does not exist"
        yield problem(
            "leader",
            f"Lease {name}: {what}, so no controller works and no pod starts",
            "look at the controllers' log and /readyz; if the Lease is missing: helm upgrade",
        )
        return
    lease = leases[0]
    duration = max(lease.number("spec", "leaseDurationSeconds"), 15)
    silent = times.age(lease.text("spec", "renewTime"), now=world.now)
    if silent > 2 * duration:
        yield problem(
            "leader",
            f"{holder} has not renewed Lease {name} for {times.spoken(silent)}, so no controller works",
            "look at the controllers' pods and logs",
        )
        return
    failing: set[str] = set()
    for pod, page in world.controller_metrics.items():
        if isinstance(page, Unread):
            yield unchecked(
                f"controller {pod}",
                f"its metrics cannot be read: {page.reason}",
                "its log, and the text of its /readyz, tell what it cannot list or watch",
            )
        else:
            watches = samples(page, "sandlot_controller_watch_failing")
            failing |= {labels.get("resource", "") for labels, value in watches if value}
    if failing:
        yield problem(
            "leader",
            f"{holder} leads, and a controller cannot list or watch {', '.join(sorted(failing))}",
            "the controllers' log and the text of /readyz say why: rights, or definitions that are not applied",
        )
    else:
        yield ok("leader", f"{holder} leads")


def _version(image: str, label: str) -> str:
    """Return the image's tag; a digest tells no version, so then that of the chart, by the Deployment's label."""
    return _tag(image) or (label if "@" in image else "") or "unknown"


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _said(detail: str, why: list[str], found: list[Wait], told: dict[str, str]) -> str:
    return "; ".join([detail, *why, *several(f"pod {one.pod}: {explained(one, told)}" for one in found)])


def _advice(found: list[Wait], otherwise: str) -> str:
    if not found:
        return otherwise
    first = found[0]
    return _ADVICE[first.of].format(namespace=first.namespace, pod=first.pod)
