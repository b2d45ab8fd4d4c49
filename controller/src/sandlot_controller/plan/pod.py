"""Builds the pod of one instance."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import msgspec
from sandlot_contract import images, names
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.stop_grace import MAX_STOP_GRACE
from sandlot_kube import reuse
from sandlot_kube.objects import Metadata, PodSpec, PoolReuse, Sandbox, SandboxPool
from sandlot_kube.template import Template, encode, key

from ..settings import Settings
from . import containers
from .containers import FILES_DIR, HOLDER_DIR, STATE_DIR, TLS_DIR
from .placement.waiting import scheduler_share

# Seconds for the longest grace of a start command, and then for the sidecar to end the rest and to tell its gateway.
STOP_SECONDS = math.ceil(MAX_STOP_GRACE) + 2
# An autoscaler removes a node with these pods only once they are gone: its eviction would end their sandboxes.
_KEPT_BY_AUTOSCALERS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
_UNREACHABLE = "node.kubernetes.io/unreachable"  # the taint of an unreachable node

ANNOTATION_BUILD = f"{names.GROUP}/build"  # on pool pods: the result of `build` when the pod was created
ANNOTATION_NODE = f"{names.GROUP}/node"  # the node that the controller chose for the pod
_LABEL_WAITED = (
    f"{names.GROUP}/waited"  # on waiting pods of the version before, which counted nothing else on a node
)
_MORE_THAN_NODES = 1_000_000
_OURS = {names.LABEL_NAME: names.APP, names.LABEL_COMPONENT: names.COMPONENT_SANDBOX}


def pool_pod(
    pool: SandboxPool,
    *,
    instance_id: str,
    token: str,
    settings: Settings,
    node: str | None = None,
    key_id: str | None = None,
) -> dict[str, Any]:
    """Return a warm pod, without an owner reference, since it outlives its pool once claimed.

    `key_id`: of the master key that the token derives from. `node`: the only node that it may run on; the scheduler still checks whether it fits there.
    """
    pod = _pod(pool.spec.template, instance_id=instance_id, token=token, settings=settings, key_id=key_id)
    pod["metadata"]["labels"][names.LABEL_POOL] = pool.metadata.name
    pod["metadata"]["annotations"] |= reuse.marks(pool.spec.reuse)
    pod["metadata"]["annotations"][ANNOTATION_BUILD] = build(
        pool.spec.template, settings=settings, policy=pool.spec.reuse, key_id=key_id
    )
    _bind(pod, node, cap=settings.starts_per_node)
    return pod


def sandbox_pod(
    sandbox: Sandbox, *, token: str, settings: Settings, node: str | None = None, key_id: str | None = None
) -> dict[str, Any]:
    """Return the pod of a cold start, with its resource's name and deleted with it; the rest as for `pool_pod`."""
    name = sandbox.metadata.name
    pod = _pod(sandbox.spec.template, instance_id=name, token=token, settings=settings, key_id=key_id)
    pod["metadata"]["labels"][names.LABEL_FOR] = name
    pod["metadata"]["ownerReferences"] = [
        {
            "apiVersion": names.API_VERSION,
            "kind": names.SANDBOX_KIND,
            "name": name,
            "uid": sandbox.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    _bind(pod, node, cap=settings.cold_starts_per_node)
    return pod


def build(template: Template, *, settings: Settings, policy: PoolReuse, key_id: str | None = None) -> str:
    """Return a hash that changes when the template, sidecar, a setting, policy or master key would change the pod.

    Not the gateway's address: sidecars find another one by its name, and a term that could not read it would replace
    every pod.
    """
    settings = settings.model_copy(update={"webhook_address": None})
    pod = _pod(template, instance_id="", token="", settings=settings, key_id=key_id)
    pod["metadata"]["annotations"] |= reuse.marks(policy)
    return hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:16]


def refusal(template: Template, *, settings: Settings) -> str | None:
    """Return why no pod of this pool template may start, or None."""
    if template.image:
        return images.refusal(template.image, allowed=settings.registries)
    if template.gpu_count:
        return (
            "spec.template.image is missing, and pods with GPUs cannot take the image of a claim, over which the "
            "driver's files would be missing: set an image"
        )
    if settings.images_directory is None:
        return (
            "spec.template.image is missing, and pods of this cluster cannot take the image of a claim: "
            "set an image, or slots.enabled in the chart"
        )
    return None


def spec_of(template: Template, *, settings: Settings) -> PodSpec:
    """Return the spec of such a pod before the API server's admission, as far as a node matters."""
    pod = _pod(template, instance_id="", token="", settings=settings)
    return msgspec.convert(pod["spec"], PodSpec)


def chosen_node(metadata: Metadata) -> str | None:
    """Return the node that the controller chose for this pod, or None if the scheduler may choose."""
    return metadata.annotations.get(ANNOTATION_NODE)


def has_old_constraint(metadata: Metadata) -> bool:
    """Return whether the scheduler may put the waiting pod where too many of ours start: an older version made it."""
    return _LABEL_WAITED in metadata.labels


def sidecar_config(template: Template, *, instance_id: str, token: str, settings: Settings) -> dict[str, Any]:
    root: dict[str, Any] = {"disk": template.disk, "upper": FILES_DIR, "mask": [HOLDER_DIR]}
    if (directory := containers.images_directory(template, settings=settings)) is not None:
        root["images"] = directory
    webhook, tls = settings.webhook_url, {}
    if settings.sidecar_tls_secret is not None:
        webhook, tls = webhook.replace("http://", "https://", 1), {"tls": TLS_DIR}
    return {
        **tls,
        "instance_id": instance_id,
        "token": token,
        "listen": f"0.0.0.0:{SIDECAR_PORT}",
        "state_dir": STATE_DIR,
        "webhook": webhook,
        "webhook_address": settings.webhook_address,
        "heartbeat": settings.heartbeat,
        "template": key(template),
        "hostname": "sandbox",
        "target": True,
        "root": root,
        "limits": {"cpu": template.cpu, "memory": template.memory, "pids": template.pids},
        "ops": {"reattach_grace": settings.reattach_grace},
    }


def _bind(pod: dict[str, Any], node: str | None, *, cap: int) -> None:
    """Let the pod run on this node only, as a DaemonSet does, or on any with few of our pods, by the limit of starts."""
    if node is None:
        pod["spec"]["topologySpreadConstraints"] = [_few_on_a_node(scheduler_share(cap))]
        return
    pod["metadata"]["annotations"][ANNOTATION_NODE] = node
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _few_on_a_node(most: int) -> dict[str, Any]:
    """Return a constraint for pods that wait for a node: one that comes, or has room again, would start all of them.

    It counts every pod of ours there: the scheduler can tell neither which are starting nor which are on the way.
    """
    return {
        "maxSkew": most,
        "minDomains": _MORE_THAN_NODES,  # so that `maxSkew` is relative to none, not to the emptiest node
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": _OURS},
    }


def _pod(
    template: Template, *, instance_id: str, token: str, settings: Settings, key_id: str | None = None
) -> dict[str, Any]:
    config = sidecar_config(template, instance_id=instance_id, token=token, settings=settings)
    runtime_class = template.runtime_class or settings.runtime_class
    laid = containers.images_directory(template, settings=settings)
    # The default class is gVisor's; any other may be an ordinary runtime, for GPUs say.
    own_kernel = runtime_class is not None and runtime_class == settings.runtime_class
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "shareProcessNamespace": True,
        # For whoever deletes it; the controller itself waits for the sidecar first, and then leaves it a second.
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "hostname": instance_id,
        "containers": [
            containers.sandbox(template, instance_id=instance_id, settings=settings, own_kernel=own_kernel),
            containers.sidecar(config, images=laid, settings=settings, own_kernel=own_kernel),
        ],
        "volumes": containers.volumes(template, settings=settings),
    }
    if settings.subdomain:
        spec["subdomain"] = settings.subdomain
    if settings.holder == "copy":
        spec["initContainers"] = [containers.holder_copy(spec["containers"][1], settings=settings)]
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if settings.scheduler_name:
        spec["schedulerName"] = settings.scheduler_name
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    selector = dict(settings.node_selector)
    if template.gpu_count and template.gpu_type:
        selector[settings.gpu_label] = template.gpu_type
    if selector:
        spec["nodeSelector"] = selector
    spec["tolerations"] = _tolerations(settings)
    annotations = {
        names.ANNOTATION_TEMPLATE: encode(template),
        **containers.hints(template),
        **_KEPT_BY_AUTOSCALERS,
    }
    if laid is not None:
        annotations[names.ANNOTATION_LAYS_IMAGES] = "true"
    if settings.sidecar_tls_secret is not None:
        annotations[names.ANNOTATION_SIDECAR_TLS] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": instance_id,
            "labels": {
                **_OURS,
                names.LABEL_INSTANCE: instance_id,
                names.LABEL_TEMPLATE: key(template),
                **({} if key_id is None else {names.LABEL_KEY: key_id}),
            },
            "annotations": annotations,
        },
        "spec": spec,
    }


def _tolerations(settings: Settings) -> list[dict[str, Any]]:
    """Return the tolerations, with our own grace for unreachable nodes in place of the default 300 s."""
    given = [one.model_dump(exclude_none=True) for one in settings.tolerations]
    for one in given:
        if one.get("key") in (None, _UNREACHABLE) and one.get("effect") in (None, "NoExecute"):
            return given
    seconds = math.ceil(settings.node_grace)
    ours = {"key": _UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return [*given, ours]
