"""What a support bundle reads beside the doctor's World: logs, metrics, further resources, known secrets."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

from . import reading
from .api import Api, Listing, Unread
from .doc import Doc, walk
from .kubectl import Kubectl
from .redaction import secrets_in
from .release import SELECTOR
from .waits import waits
from .world import Kind, World

Content = str | Unread
Source = tuple[str, Callable[[], Content]]

NODE_AGENT_PORT = 8660
_LOG = {"tailLines": "5000", "limitBytes": str(2 << 20), "timestamps": "true"}
_SIDECAR_LOG = {"tailLines": "500", "limitBytes": str(256 << 10), "timestamps": "true"}
_SIDECARS = 20
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


def further(api: Api, world: World) -> Iterator[Source]:
    """Yield resources that no check needs."""
    release = world.release
    for base, plural, both in _FURTHER:
        for namespace in (release.namespace, release.sandboxes) if both else (release.sandboxes,):
            yield f"resources/{namespace}/{plural}.json", _listing(api, base, plural, namespace)


def logs(api: Api, world: World) -> Iterator[Source]:
    """Yield the logs of all containers of the release; of sandboxes' pods only the sidecars', never the users'."""
    release = world.release
    ours = [*_pods(world, release.namespace), *_pods(world, release.sandboxes)]
    sandboxes = [pod for pod in ours if pod.component == "sandbox"]
    for pod in ours:
        if pod.component == "sandbox":
            continue
        statuses = pod.docs("status", "initContainerStatuses") + pod.docs("status", "containerStatuses")
        restarted = {one.text("name") for one in statuses if one.number("restartCount")}
        for container in pod.docs("spec", "initContainers") + pod.docs("spec", "containers"):
            name = container.text("name")
            yield f"logs/{pod.namespace}/{pod.name}/{name}.log", _log(api, pod, name, _LOG)
            if name in restarted:
                path = f"logs/{pod.namespace}/{pod.name}/{name}.previous.log"
                yield path, _log(api, pod, name, _LOG | {"previous": "true"})
    # Those that do not run say most.
    chosen = sorted(sandboxes, key=lambda pod: not any(waits(pod, now=world.now)))[:_SIDECARS]
    for pod in chosen:
        yield f"logs/{pod.namespace}/{pod.name}/sidecar.log", _log(api, pod, "sidecar", _SIDECAR_LOG)


def metrics(kubectl: Kubectl, world: World) -> Iterator[Source]:
    """Yield the metrics of gateways and controllers, which the World has, and of the node agents."""
    for component, pages in (("gateway", world.gateway_metrics), ("controller", world.controller_metrics)):
        for pod, page in pages.items():
            yield f"metrics/{component}-{pod}.txt", lambda page=page: page
    for pod in _pods(world, world.release.sandboxes):
        if pod.component == "node-agent":
            path = f"metrics/node-agent-{pod.name}.txt"
            yield path, lambda pod=pod: reading.metrics(kubectl, pod, NODE_AGENT_PORT, None)


def known_secrets(api: Api, world: World) -> Iterator[str]:
    """Yield the values of Secrets, only to remove them from what is written."""
    release = world.release
    public = {release.name, release.namespace, release.sandboxes, "sandlot"}
    for namespace in (release.namespace, release.sandboxes):
        found = api.list(*Kind.SECRETS.value, namespace=namespace, fields="type!=helm.sh/release.v1")
        for secret in found.items if isinstance(found, Listing) else []:
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
