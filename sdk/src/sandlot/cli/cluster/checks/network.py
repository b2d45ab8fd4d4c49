"""Checks the NetworkPolicies: present, and open from sidecars to gateway, and to DNS or not needed for it."""

from __future__ import annotations

from collections.abc import Iterator

from ..doc import Doc, json_of
from ..finding import Finding, ok, problem, unchecked
from ..world import Kind, World

WEBHOOK_PORT, _DNS = 8641, 53
_CONFIG = "SANDLOT_SIDECAR_CONFIG"  # the variable with a sidecar's configuration
_SANDBOX = {"app.kubernetes.io/name": "sandlot", "app.kubernetes.io/component": "sandbox"}
_RESTORE = "restore the chart's policies: helm upgrade with networkPolicy.enabled"


def policies(world: World) -> Iterator[Finding]:
    release = world.release
    inside = world.list(Kind.POLICIES, release.sandboxes)
    label = f"network policies of {release.sandboxes}"
    if not any(_denies_all(one) for one in inside):
        yield problem(
            label,
            "none denies all traffic, so sandboxes reach each other, the API server and the cloud's metadata",
            _RESTORE,
        )
    elif not any(_opens(one, WEBHOOK_PORT, release.namespace) for one in inside):
        yield problem(
            label,
            f"none lets sidecars reach port {WEBHOOK_PORT} of the gateways in {release.namespace}",
            _RESTORE,
        )
    else:
        yield ok(label, "sandboxes are isolated, and sidecars may reach the gateways")
    workload = world.workload("gateway")
    if workload is None:
        return
    labels = workload.pairs("spec", "template", "metadata", "labels")
    own = world.list(Kind.POLICIES, release.namespace)
    chosen = [one for one in own if _selects(one, labels) and "Ingress" in one.texts("spec", "policyTypes")]
    label = f"network policies of {release.namespace}"
    ports = [port for one in chosen for rule in one.docs("spec", "ingress") for port in _ports(rule)]
    if not chosen:
        detail = "none covers the gateways, so sandboxes with a way to them reach all of their ports"
        yield problem(label, detail, _RESTORE)
    elif WEBHOOK_PORT not in ports and None not in ports:
        yield problem(label, f"none lets sidecars in to port {WEBHOOK_PORT} of the gateways", _RESTORE)
    else:
        yield ok(label, "the gateways are covered, and open to sidecars")


def dns(world: World) -> Iterator[Finding]:
    inside = world.list(Kind.POLICIES, world.release.sandboxes)
    if not any(_denies_all(one) for one in inside):
        return
    rules = [
        rule
        for one in inside
        if _selects(one, _SANDBOX)
        for rule in one.docs("spec", "egress")
        if _DNS in _ports(rule) or None in _ports(rule)
    ]
    if rules:
        yield ok("DNS", "a network policy lets sandboxes ask DNS")
    else:
        yield _addresses(world)


def _addresses(world: World) -> Finding:
    """Check that sidecars, which cannot look a name up, have the address of the gateways' Service."""
    label, closed = "DNS", "no network policy lets sandboxes ask DNS"
    known = [found for pod in world.pods("sandbox") if (found := _webhook_address(pod)) is not None]
    if not known:
        return unchecked(
            label,
            f"{closed}, and there is no sidecar whose address of the gateways can be seen",
            "see the pools and pods; without a pool, create a sandbox first",
        )
    workload = world.workload("gateway")
    name = "" if workload is None else f"{workload.name}-webhooks"
    services = world.list(Kind.SERVICES, world.release.namespace)
    address = next((one.text("spec", "clusterIP") for one in services if one.name == name), "")
    wrong = [one for one in known if not one or (address and one != address)]
    if not wrong:
        return ok(label, f"{closed}; {len(known)} sidecars have the gateways' address")
    return problem(
        label,
        f"{closed}, and {len(wrong)} of {len(known)} sidecars do not have the address of the Service "
        f"{world.release.namespace}/{name} ({address or 'not known'})",
        "restart the controllers, which read it when they begin, and replace those pods; or set "
        "networkPolicy.dns.enabled. If pods get no address, the controllers' log says why",
    )


def _webhook_address(pod: Doc) -> str | None:
    """Return the address of the gateways that the pod's sidecar was given, "" for none; None if that is not known."""
    for container in pod.docs("spec", "containers"):
        for variable in container.docs("env"):
            if variable.text("name") == _CONFIG:
                told = Doc({"config": json_of(variable.text("value"), None)})
                known = isinstance(told.value("config"), dict)
                return told.text("config", "webhook_address") if known else None
    return None


def _denies_all(policy: Doc) -> bool:
    kinds = policy.texts("spec", "policyTypes")
    everyone = not policy.doc("spec", "podSelector").raw
    return everyone and "Egress" in kinds and "Ingress" in kinds and not policy.docs("spec", "egress")


def _opens(policy: Doc, port: int, namespace: str) -> bool:
    """Return whether it lets sandboxes out to this port of that namespace, or of any."""
    if not _selects(policy, _SANDBOX):
        return False
    for rule in policy.docs("spec", "egress"):
        peers = rule.docs("to")
        names = [
            peer.pairs("namespaceSelector", "matchLabels").get("kubernetes.io/metadata.name")
            for peer in peers
        ]
        if (port in _ports(rule) or None in _ports(rule)) and (not peers or namespace in names):
            return True
    return False


def _selects(policy: Doc, labels: dict[str, str]) -> bool:
    return policy.pairs("spec", "podSelector", "matchLabels").items() <= labels.items()


def _ports(rule: Doc) -> list[int | None]:
    """Return the ports of a rule; None stands for all."""
    return [one.number("port") for one in rule.docs("ports")] or [None]
