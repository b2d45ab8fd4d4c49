"""Checks the Services: those of the gateway have endpoints, and the headless one knows the sandboxes' pods."""

from __future__ import annotations

from collections.abc import Iterator

from ..doc import Doc
from ..finding import Finding, ok, problem
from ..world import Kind, World

_HELM = "restore it: helm upgrade"


def check(world: World) -> Iterator[Finding]:
    release = world.release
    workload = world.workload("gateway")
    found = {one.name: one for one in world.list(Kind.SERVICES, release.namespace)}
    for suffix, users in (("", "clients"), ("-webhooks", "sidecars")):
        if workload is None:
            break
        name = f"{workload.name}{suffix}"
        label = f"service {release.namespace}/{name}"
        if name not in found:
            yield problem(label, f"it does not exist, so {users} find no gateway", _HELM)
            continue
        ready = _endpoints(world, release.namespace, name, ready=True)
        if not ready:
            yield problem(
                label,
                f"it has no ready endpoint, so {users} reach no gateway",
                "see the gateways' Deployment above; if its pods are ready, compare the Service's selector with their labels",
            )
        elif _pending(found[name]):
            yield problem(
                label,
                "the cluster has given its load balancer no address",
                f"kubectl -n {release.namespace} describe service {name}",
            )
        else:
            yield ok(label, f"{ready} ready endpoints")
    yield from _headless(world)


def _headless(world: World) -> Iterator[Finding]:
    namespace = world.release.sandboxes
    name = world.settings("controller").get("SANDLOT_SUBDOMAIN")
    if name is None:
        return
    label = f"service {namespace}/{name}"
    service = next((one for one in world.list(Kind.SERVICES, namespace) if one.name == name), None)
    if service is None:
        yield problem(label, "it does not exist, so sandboxes' pods have no DNS names", _HELM)
        return
    if service.text("spec", "clusterIP") != "None":
        yield problem(
            label, "it is not headless, so sandboxes' pods have no DNS names", f"delete it, then {_HELM}"
        )
        return
    running = [pod for pod in world.pods("sandbox") if pod.text("status", "podIP")]
    known = _endpoints(world, namespace, name, ready=False)
    if running and not known:
        yield problem(
            label,
            f"{len(running)} sandboxes' pods have an address, and its EndpointSlices have none",
            "compare its selector with the pods' labels; look at kube-controller-manager, which writes EndpointSlices",
        )
    else:
        yield ok(label, f"its EndpointSlices have {known} pods")


def _endpoints(world: World, namespace: str, service: str, *, ready: bool) -> int:
    """Return how many pods its EndpointSlices name; an IPv6 slice repeats those of IPv4."""
    names = {
        one.text("targetRef", "name") or ",".join(one.texts("addresses"))
        for piece in world.list(Kind.SLICES, namespace)
        if piece.labels.get("kubernetes.io/service-name") == service
        for one in piece.docs("endpoints")
        if not ready or one.value("conditions", "ready") is not False
    }
    return len(names)


def _pending(service: Doc) -> bool:
    balanced = service.text("spec", "type") == "LoadBalancer"
    return balanced and not service.docs("status", "loadBalancer", "ingress")
