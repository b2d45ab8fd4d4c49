"""What a support bundle reads beside the doctor's World: logs, metrics, further resources, known secrets."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlencode

from .api import Api, Listing, Reading, Unread
from .doc import Doc, walk
from .kubectl import Kubectl
from .pages import metrics
from .redaction import secrets_in
from .release import SELECTOR
from .waits import waits
from .world import Kind, World

Content = str | Unread
Source = tuple[str, Callable[[], Content]]

NODE_AGENT_PORT = 8660
_LOG = {"tailLines": "5000", "limitBytes": str(2 << 20), "timestamps": "true"}
SMALL_LOG = 256 << 10  # bytes, of what runs many times
_SMALL_LOG = {"tailLines": "500", "limitBytes": str(SMALL_LOG), "timestamps": "true"}
_MOST = 20  # sidecars, and as many of what runs on each node, such as node agents
_OURS = "/apis/sandlot.dev/v1alpha1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
# Base path and plural, and whether those of the release's namespace are meant, too.
_FURTHER = (
    (_OURS, "sandboxes", False),
    (_OURS, "imagewarmups", False),
    ("/api/v1", "events", True),
    ("/apis/apps/v1", "replicasets", True),
    ("/apis/policy/v1", "poddisruptionbudgets", True),
    ("/apis/autoscaling/v2", "horizontalpodautoscalers", True),
    (_RBAC, "roles", True),
    (_RBAC, "rolebindings", True),
)


def wanted(kubectl: Kubectl, api: Api, world: World) -> Iterator[Source]:
    """Yield what to read, the most telling and what is small first: time and room may not suffice for all."""
    components: dict[str, list[Doc]] = {}
    for namespace in dict.fromkeys((world.release.namespace, world.release.sandboxes)):
        for pod in _pods(world, namespace):
            components.setdefault(pod.component, []).append(pod)
    yield from _further(api, world)
    yield from _own_metrics(world)
    for component in ("gateway", "controller"):
        for pod in components.pop(component, []):
            yield from _logs(api, pod, _LOG)
    for pod in _some(world, components.pop("sandbox", [])):  # only the sidecars' logs, never the users'
        yield f"logs/{pod.namespace}/{pod.name}/sidecar.log", _log(api, pod, "sidecar", _SMALL_LOG)
    for component, pods in components.items():  # these run on each node
        for pod in _some(world, pods):
            if component == "node-agent":
                path = f"metrics/node-agent-{pod.name}.txt"
                yield path, lambda pod=pod: metrics(kubectl, pod, NODE_AGENT_PORT, None)
            yield from _logs(api, pod, _SMALL_LOG)


def _some(world: World, pods: list[Doc]) -> list[Doc]:
    """Return some of the pods, those that do not run first: they say most."""
    return sorted(pods, key=lambda pod: not any(waits(pod, now=world.now)))[:_MOST]


def _further(api: Api, world: World) -> Iterator[Source]:
    """Yield resources that no check needs."""
    release = world.release
    for base, plural, both in _FURTHER:
        for namespace in (release.namespace, release.sandboxes) if both else (release.sandboxes,):
            yield f"resources/{namespace}/{plural}.json", _listing(api, base, plural, namespace)


def _own_metrics(world: World) -> Iterator[Source]:
    """Yield the metrics of gateways and controllers, which the World has."""
    for component, pages in (("gateway", world.gateway_metrics), ("controller", world.controller_metrics)):
        for pod, page in pages.items():
            yield f"metrics/{component}-{pod}.txt", lambda page=page: page


def _logs(api: Api, pod: Doc, query: dict[str, str]) -> Iterator[Source]:
    """Yield the logs of all containers of the pod, and what those wrote last that were restarted."""
    statuses = pod.docs("status", "initContainerStatuses") + pod.docs("status", "containerStatuses")
    restarted = {one.text("name") for one in statuses if one.number("restartCount")}
    for container in pod.docs("spec", "initContainers") + pod.docs("spec", "containers"):
        name = container.text("name")
        path = f"logs/{pod.namespace}/{pod.name}/{name}"
        yield f"{path}.log", _log(api, pod, name, query)
        if name in restarted:
            yield f"{path}.previous.log", _log(api, pod, name, query | {"previous": "true"})


def secrets(api: Api, world: World) -> dict[str, Reading]:
    """Return the Secrets with their values, by namespace."""
    kept = "type!=helm.sh/release.v1"
    spaces = dict.fromkeys((world.release.namespace, world.release.sandboxes))
    return {space: api.list(*Kind.SECRETS.value, namespace=space, fields=kept) for space in spaces}


def known_secrets(world: World, found: Mapping[str, Reading]) -> Iterator[str]:
    """Yield the values of Secrets, only to remove them from what is written."""
    release = world.release
    public = {release.name, release.namespace, release.sandboxes, "sandlot"}
    for listing in found.values():
        for secret in listing.items if isinstance(listing, Listing) else []:
            for encoded in secret.pairs("data").values():
                yield encoded
                for text in _decoded(encoded):
                    if text.strip() not in public:
                        yield text


def instance_tokens(world: World) -> Iterator[str]:
    """Yield the tokens of the sandboxes' pods, which their sidecars' configuration has."""
    for pod in _pods(world, world.release.sandboxes):
        for variable in walk([one.raw for one in pod.docs("spec", "containers")]):
            text = variable.get("value")
            if isinstance(text, str) and text[:1] == "{":
                yield from secrets_in({"value": text})


def _decoded(encoded: str) -> Iterator[str]:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    yield text
    try:
        yield from secrets_in(json.loads(text))
    except ValueError:
        return


def _pods(world: World, namespace: str) -> list[Doc]:
    found = world.readings.get((Kind.PODS, namespace))
    return found.items if isinstance(found, Listing) else []


def _listing(api: Api, base: str, plural: str, namespace: str) -> Callable[[], Content]:
    def read() -> Content:
        selector = SELECTOR if base == "/apis/apps/v1" else ""
        found = api.list(base, plural, namespace=namespace, selector=selector)
        return found if isinstance(found, Unread) else json.dumps([one.raw for one in found.items])

    return read


def _log(api: Api, pod: Doc, container: str, query: dict[str, str]) -> Callable[[], Content]:
    path = f"{Kind.PODS.base}/namespaces/{pod.namespace}/pods/{pod.name}/log"
    return lambda: api.text(f"{path}?{urlencode({'container': container, **query})}")
