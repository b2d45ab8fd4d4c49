"""Reads a World of the cluster: lists side by side, then what depends on them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sandlot._version import __version__

from . import pod_requests, rights
from . import release as releases
from .api import METADATA, Api, Listing, Reading, Unread
from .doc import Doc, environment
from .kubectl import CannotRun, Kubectl
from .pages import Page, page
from .pod_requests import Amounts
from .release import Release
from .skew import Skew
from .world import CLUSTER, NODE_LEASES, Kind, NotRead, Review, Tool, World

_AT_ONCE = 8
_LOGS = 5  # sidecars whose logs are read: a fault of the network or the gateway is in each of them
GATEWAY_PORT, CONTROLLER_PORT = 8642, 8080
_REVIEWS = "/apis/authorization.k8s.io/v1"


def read(
    kubectl: Kubectl, api: Api, *, namespace: str | None, name: str | None, api_key: str | None
) -> World:
    """Read the only release, or that of this namespace and name. Raises CannotRun where there is none."""
    api.first(
        "/version"
    )  # it may wait for kubectl's credentials, and would tell the clock no better than that
    sent = time.time()
    version, date = api.first("/version")
    got = time.time()
    clock = None if date is None else -Skew.told(date, sent=sent, got=got)
    found = api.list(*Kind.DEPLOYMENTS.value, namespace=namespace, selector=releases.SELECTOR)
    if isinstance(found, Unread):
        raise CannotRun(
            f"the Deployments cannot be listed: {found.reason}: "
            "name the release's namespace with --namespace, or ask for the right to read it"
        )
    release = releases.find(found.items, namespace=namespace, name=name)
    tool = Tool(__version__, kubectl.version, kubectl.program, kubectl.context, version.text("gitVersion"))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        wanted = _wanted(release)

        def listed(one: tuple[Kind, str]) -> Reading:
            return _list(api, release, *one)

        def reviewed(one: _Question) -> Review:
            return _review(api, *one)

        readings = dict(zip(wanted, pool.map(listed, wanted), strict=True))
        world = World(tool, release, got if date is None else date + 0.5, clock, readings)
        reviews = pool.map(reviewed, _questions(world))
        requested = pool.submit(_requested, api)
        logs = {pod.name: pool.submit(_log, api, pod) for pod in _spread(_running(world, "sandbox"))}
        gateways = _pages(pool, kubectl, _running(world, "gateway"), GATEWAY_PORT, api_key)
        controllers = _pages(pool, kubectl, _running(world, "controller"), CONTROLLER_PORT, None)
        return replace(
            world,
            gateway_metrics=_texts(gateways),
            controller_metrics=_texts(controllers),
            reviews=tuple(reviews),
            sidecar_logs={pod: future.result() for pod, future in logs.items()},
            part_clocks={
                pod: page.clock + clock if page.clock and clock else None
                for pod, page in (gateways | controllers).items()
            },
            requested=requested.result(),
        )


def _wanted(release: Release) -> list[tuple[Kind, str]]:
    both = (
        Kind.DAEMON_SETS,
        Kind.PODS,
        Kind.SECRETS,
        Kind.SERVICES,
        Kind.QUOTAS,
        Kind.LIMITS,
        Kind.EVENTS,
        Kind.SLICES,
        Kind.POLICIES,
    )
    return [
        *((kind, namespace) for kind in both for namespace in (release.namespace, release.sandboxes)),
        *((kind, release.namespace) for kind in (Kind.DEPLOYMENTS, Kind.CLAIMS, Kind.LEASES)),
        (Kind.POOLS, release.sandboxes),
        (Kind.LEASES, NODE_LEASES),
        *(
            (kind, CLUSTER)
            for kind in (
                Kind.NODES,
                Kind.NAMESPACES,
                Kind.RUNTIME_CLASSES,
                Kind.PRIORITY_CLASSES,
                Kind.DEFINITIONS,
            )
        ),
    ]


def _list(api: Api, release: Release, kind: Kind, namespace: str) -> Reading:
    if kind is Kind.NAMESPACES:  # an operator of one release may read these two and list none
        return _each(api, kind, (release.namespace, release.sandboxes))
    if kind is Kind.DEFINITIONS:
        return _each(
            api, kind, ("sandboxes.sandlot.dev", "sandboxpools.sandlot.dev", "imagewarmups.sandlot.dev")
        )
    selector = releases.SELECTOR if kind is Kind.PODS else ""
    if kind in (Kind.DEPLOYMENTS, Kind.DAEMON_SETS) or (kind is Kind.PODS and namespace == release.namespace):
        selector = release.selector
    if kind is Kind.EVENTS:
        return api.list(*kind.value, namespace=namespace, fields="type=Warning")
    if kind is Kind.SECRETS:
        return api.list(*kind.value, namespace=namespace, accept=METADATA)
    return api.list(*kind.value, namespace=namespace or None, selector=selector)


def _requested(api: Api) -> dict[str, Amounts] | Unread:
    """Return the requests of the pods of all namespaces, whoever made them; keep no page of them."""
    found: dict[str, Amounts] = {}
    fields = "status.phase!=Succeeded,status.phase!=Failed"
    for items in api.pages(*Kind.PODS.value, fields=fields):
        if isinstance(items, Unread):
            return items
        pod_requests.add(found, items)
    return found


def _each(api: Api, kind: Kind, names: Iterable[str]) -> Reading:
    items: list[Doc] = []
    for name in names:
        found = api.get(f"{kind.base}/{kind.plural}/{name}")
        if isinstance(found, Unread):
            if found.missing:
                continue
            return found
        items.append(found)
    return Listing(items)


_Question = tuple[str, str, rights.Right, str, str]  # who, the account, the right, a verb, the namespace


def _questions(world: World) -> list[_Question]:
    """Return what the reviews ask; nothing about parts that do not exist."""
    release = world.release
    where = {"sandboxes": release.sandboxes, "release": release.namespace, "cluster": CLUSTER}
    asked = [("you", "", right, verb, where[right.place]) for right in rights.CALLER for verb in right.verbs]
    for component, needs in (("gateway", rights.GATEWAY), ("controller", rights.CONTROLLER)):
        workload = _workload(world, component)
        if workload is None:
            continue
        account = workload.text("spec", "template", "spec", "serviceAccountName") or "default"
        user = f"system:serviceaccount:{release.namespace}:{account}"
        asked += [
            (component, user, right, verb, where[right.place]) for right in needs for verb in right.verbs
        ]
        if lease := environment(workload).get("SANDLOT_LEASE_NAME"):
            named = [rights.lease(lease)]
            if (gateway := _workload(world, "gateway")) is not None:
                named.append(rights.webhooks(f"{gateway.name}-webhooks"))
            asked += [
                (component, user, right, verb, release.namespace) for right in named for verb in right.verbs
            ]
    return asked


def _review(api: Api, who: str, user: str, right: rights.Right, verb: str, namespace: str) -> Review:
    plural, _, inner = right.resource.partition("/")
    asked = {"group": right.group, "resource": plural, "subresource": inner, "verb": verb, "name": right.name}
    spec: dict[str, object] = {"resourceAttributes": asked | ({"namespace": namespace} if namespace else {})}
    if user:
        groups = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{user.split(':')[2]}",
            "system:authenticated",
        ]
        spec |= {"user": user, "groups": groups}
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    found = api.post(f"{_REVIEWS}/{kind.lower()}s", body)
    allowed = found if isinstance(found, Unread) else found.value("status", "allowed") is True
    return Review(who, verb, right.resource, namespace, allowed)


def _workload(world: World, component: str) -> Doc | None:
    try:
        return world.workload(component)
    except NotRead:
        return None


def _running(world: World, component: str) -> list[Doc]:
    """Return the pods that run and do not end, as far as they can be read."""
    try:
        pods = world.pods(component)
    except NotRead:
        return []
    running = (pod for pod in pods if pod.text("status", "phase") == "Running")
    return [pod for pod in running if not pod.text("metadata", "deletionTimestamp")]


def _spread(pods: Iterable[Doc]) -> list[Doc]:
    """Return one pod of each node, some nodes at most."""
    return list({pod.text("spec", "nodeName"): pod for pod in pods}.values())[:_LOGS]


def _log(api: Api, pod: Doc) -> str | Unread:
    path = f"{Kind.PODS.base}/namespaces/{pod.namespace}/pods/{pod.name}/log"
    return api.text(f"{path}?container=sidecar&tailLines=50&limitBytes=65536")


def _pages(
    pool: ThreadPoolExecutor, kubectl: Kubectl, pods: Iterable[Doc], port: int, key: str | None
) -> dict[str, Page]:
    futures = {pod.name: pool.submit(page, kubectl, pod, port, key) for pod in pods}
    return {pod: future.result() for pod, future in futures.items()}


def _texts(pages: Mapping[str, Page]) -> dict[str, str | Unread]:
    return {pod: page.text for pod, page in pages.items()}
