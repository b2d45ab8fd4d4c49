"""Builds the pod of one instance: the user's container and the sidecar beside it."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from sandlot_contract import names
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.sidecar import CONFIG_VARIABLE, TARGET_VARIABLE
from sandlot_kube.objects import Metadata, Sandbox, SandboxPool
from sandlot_kube.template import Template, encode, key

from sandlot_controller.settings import Settings

STATE_DIR = "/run/sandlot"
_STATE_VOLUME = "state"
# What sandboxes write. gVisor keeps it itself, in a file on the node's disk, where the runtime's handler lets our
# annotations through: 4 to 12 times faster than an emptyDir by its gofer, and it ends at the byte.
FILES_DIR = "/run/sandlot-files"
_FILES_VOLUME = "files"
_HINT = f"dev.gvisor.spec.mount.{_FILES_VOLUME}"
# Where the container's first process is, and where the sidecar's image has it. Were it the image's own shell, code of
# the image would run beside the sidecar, outside of what holds commands.
HOLDER_DIR = "/.sandlot"
_HOLDER_VOLUME = "holder"
_HOLDER_IN_IMAGE = "opt/sandlot-holder"
_HOLDER_SIZE = 64 << 10
# What a sidecar may use of its pod's cores where the pod has a kernel of its own, such as gVisor's.
_CORES_IN_A_KERNEL = 0.2
# A full disk must be met by gVisor or the sidecar, which gives it a verdict; were both limits equal, the kubelet would
# evict the pod at the same moment. The sidecar keeps ops' output in as much.
_STATE_SLACK = 1 << 30

_UNREACHABLE = "node.kubernetes.io/unreachable"  # the taint of a node that nothing is heard of

ANNOTATION_BUILD = f"{names.GROUP}/build"  # on pods of pools: what `build` gave when the pod was made
ANNOTATION_AVOIDS = f"{names.GROUP}/avoids"  # nodes that were at their cap when the pod was made


def pool_pod(
    pool: SandboxPool, *, instance_id: str, token: str, settings: Settings, avoid: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A warm pod. No owner reference: it outlives its pool once it has been claimed.

    `avoid`: nodes that start as many as they may; the scheduler chooses among the others.
    """
    pod = _pod(pool.spec.template, instance_id=instance_id, token=token, settings=settings)
    pod["metadata"]["labels"][names.LABEL_POOL] = pool.metadata.name
    pod["metadata"]["annotations"][ANNOTATION_BUILD] = build(pool.spec.template, settings=settings)
    if avoid:
        pod["metadata"]["annotations"][ANNOTATION_AVOIDS] = ",".join(avoid)
        fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in avoid]
        terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
        pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod


def sandbox_pod(sandbox: Sandbox, *, token: str, settings: Settings) -> dict[str, Any]:
    """The pod of a cold start: named like its resource, and deleted with it."""
    name = sandbox.metadata.name
    pod = _pod(sandbox.spec.template, instance_id=name, token=token, settings=settings)
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
    return pod


def build(template: Template, *, settings: Settings) -> str:
    """Tells whether a pod would be made otherwise now: another template, sidecar or setting gives another word."""
    pod = _pod(template, instance_id="", token="", settings=settings)
    return hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:16]


def avoided(metadata: Metadata) -> frozenset[str]:
    """The nodes that this pod may not go to although they may have room by now."""
    return frozenset(filter(None, metadata.annotations.get(ANNOTATION_AVOIDS, "").split(",")))


def sidecar_config(template: Template, *, instance_id: str, token: str, settings: Settings) -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "token": token,
        "listen": f"0.0.0.0:{SIDECAR_PORT}",
        "state_dir": STATE_DIR,
        "webhook": settings.webhook_url,
        "heartbeat": settings.heartbeat,
        "template": key(template),
        "hostname": "sandbox",
        "target": True,
        "root": {"disk": template.disk, "upper": FILES_DIR, "mask": [HOLDER_DIR]},
        "limits": {"cpu": template.cpu, "memory": template.memory, "pids": template.pids},
        "ops": {"reattach_grace": settings.reattach_grace},
    }


def _pod(template: Template, *, instance_id: str, token: str, settings: Settings) -> dict[str, Any]:
    config = sidecar_config(template, instance_id=instance_id, token=token, settings=settings)
    runtime_class = template.runtime_class or settings.runtime_class
    # That of the setting is gVisor's. Any other may be a container like all others, with a GPU say.
    own_kernel = runtime_class is not None and runtime_class == settings.runtime_class
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": 1,
        "hostname": instance_id,
        "subdomain": settings.subdomain,
        "containers": [
            _sandbox_container(template, instance_id=instance_id, settings=settings, own_kernel=own_kernel),
            _sidecar_container(config, settings=settings, own_kernel=own_kernel),
        ],
        "volumes": [
            {"name": _STATE_VOLUME, "emptyDir": {"sizeLimit": str(_STATE_SLACK)}},
            {"name": _FILES_VOLUME, "emptyDir": {"sizeLimit": str(template.disk + _STATE_SLACK)}},
            _holder_volume(settings),
        ],
    }
    if settings.holder == "copy":
        spec["initContainers"] = [_copying_container(spec["containers"][1], settings=settings)]
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
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": instance_id,
            "labels": {
                names.LABEL_NAME: names.APP,
                names.LABEL_COMPONENT: names.COMPONENT_SANDBOX,
                names.LABEL_INSTANCE: instance_id,
                names.LABEL_TEMPLATE: key(template),
            },
            "annotations": {
                names.ANNOTATION_TEMPLATE: encode(template),
                f"{_HINT}.type": "bind",
                f"{_HINT}.share": "pod",
                f"{_HINT}.options": f"rw,size={template.disk}",
            },
        },
        "spec": spec,
    }


def _sandbox_container(
    template: Template, *, instance_id: str, settings: Settings, own_kernel: bool
) -> dict[str, Any]:
    # A kernel of the pod's own holds no command to its limit: the sidecar ends it there, and needs a moment. Without
    # room for what is filled meanwhile the node would kill all of the pod.
    headroom = settings.memory_headroom if own_kernel else 0
    limits = {
        "cpu": _cores(template.cpu),
        "memory": str(template.memory + headroom),
        "ephemeral-storage": str(template.disk),
    }
    requests = dict(limits)
    # Without a request of its own a resource with a limit would be requested in full.
    if not settings.guaranteed:
        requests = {
            "cpu": _cores(template.cpu * settings.cpu_share),
            "memory": str(math.ceil(template.memory * settings.memory_share)),
            "ephemeral-storage": str(math.ceil(template.disk * settings.disk_share)),
        }
    if template.gpu_count:
        limits[settings.gpu_resource] = requests[settings.gpu_resource] = str(template.gpu_count)
    container: dict[str, Any] = {
        "name": names.CONTAINER_SANDBOX,
        "image": template.image,
        "command": [f"{HOLDER_DIR}/holder"],
        "volumeMounts": [_holder_mount(settings)],
        "env": [{"name": TARGET_VARIABLE, "value": instance_id}],
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {
            "seccompProfile": {"type": settings.seccomp},
            # With a raw socket it would read its tokens, and forge answers of its sidecar, on the pod's own network.
            "capabilities": {"drop": ["NET_RAW"]},
        },
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    return container


def _holder_volume(settings: Settings) -> dict[str, Any]:
    if settings.holder == "copy":
        return {"name": _HOLDER_VOLUME, "emptyDir": {"sizeLimit": str(_HOLDER_SIZE)}}
    image = {"reference": settings.sidecar_image, "pullPolicy": settings.sidecar_pull_policy}
    return {"name": _HOLDER_VOLUME, "image": image}


def _holder_mount(settings: Settings) -> dict[str, Any]:
    mount = {"name": _HOLDER_VOLUME, "mountPath": HOLDER_DIR, "readOnly": True}
    return mount if settings.holder == "copy" else {**mount, "subPath": _HOLDER_IN_IMAGE}


def _copying_container(sidecar: dict[str, Any], *, settings: Settings) -> dict[str, Any]:
    """Ends before the others start, so that it asks for no more than the sidecar beside it."""
    return {
        "name": _HOLDER_VOLUME,
        "image": settings.sidecar_image,
        "imagePullPolicy": settings.sidecar_pull_policy,
        "command": ["cp", f"/{_HOLDER_IN_IMAGE}/holder", f"{HOLDER_DIR}/holder"],
        "resources": sidecar["resources"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": _HOLDER_VOLUME, "mountPath": HOLDER_DIR}],
    }


def _sidecar_container(config: dict[str, Any], *, settings: Settings, own_kernel: bool) -> dict[str, Any]:
    # Both limits are needed: where one container of a pod has none, gVisor's one cgroup for all has none either.
    # The pod's limit of disk is the sum of its containers', and volumes count: this is the volume's slack.
    # There what the sidecar may use is the sandbox's to use: with a whole core, code had two cores for its one.
    most = min(settings.sidecar_cpu_limit, _CORES_IN_A_KERNEL) if own_kernel else settings.sidecar_cpu_limit
    limits = {
        "cpu": _cores(most),
        "memory": str(settings.sidecar_memory_limit),
        "ephemeral-storage": str(_STATE_SLACK),
    }
    requests = {
        "cpu": _cores(settings.sidecar_cpu_request),
        "memory": str(settings.sidecar_memory_request),
        "ephemeral-storage": "0",
    }
    return {
        "name": names.CONTAINER_SIDECAR,
        "image": settings.sidecar_image,
        "imagePullPolicy": settings.sidecar_pull_policy,
        "env": [
            {"name": CONFIG_VARIABLE, "value": json.dumps(config, separators=(",", ":"))},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "sidecar", "containerPort": SIDECAR_PORT}],
        "resources": {"requests": limits if settings.guaranteed else requests, "limits": limits},
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": _STATE_VOLUME, "mountPath": STATE_DIR},
            {"name": _FILES_VOLUME, "mountPath": FILES_DIR},
        ],
    }


def _tolerations(settings: Settings) -> list[dict[str, Any]]:
    """Kubernetes takes a pod from an unreachable node after 300 s by itself; the same as our own grace is wanted."""
    given = [one.model_dump(exclude_none=True) for one in settings.tolerations]
    for one in given:
        if one.get("key") in (None, _UNREACHABLE) and one.get("effect") in (None, "NoExecute"):
            return given
    seconds = math.ceil(settings.node_grace)
    ours = {"key": _UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return [*given, ours]


def _cores(value: float) -> str:
    return f"{math.ceil(round(value * 1000, 6))}m"
