"""Builds the pod of one instance: the user's container and the sidecar."""

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

from ..settings import Settings

STATE_DIR = "/run/sandlot"
_STATE_VOLUME = "state"
# Files that sandboxes write. If its runtime handler lets our annotations through, gVisor keeps them in one file on the
# node's disk: 4 to 12 times faster than an emptyDir through its gofer, and limited to the byte.
FILES_DIR = "/run/sandlot-files"
_FILES_VOLUME = "files"
_HINT = f"dev.gvisor.spec.mount.{_FILES_VOLUME}"
# Where the container's first process is mounted, and where the sidecar's image has it. If it were the user image's
# shell, code of that image would run beside the sidecar, outside of what confines commands.
HOLDER_DIR = "/.sandlot"
_HOLDER_VOLUME = "holder"
_HOLDER_IN_IMAGE = "opt/sandlot-holder"
_HOLDER_SIZE = 64 << 10
# Cores a sidecar may use in a pod with a kernel of its own, such as gVisor's.
_CORES_IN_A_KERNEL = 0.2
# gVisor or the sidecar must notice a full disk first, as they give a verdict; with equal limits the kubelet would evict
# the pod at the same moment. The sidecar's kept output has the same room.
_STATE_SLACK = 1 << 30

_UNREACHABLE = "node.kubernetes.io/unreachable"  # the taint of an unreachable node

ANNOTATION_BUILD = f"{names.GROUP}/build"  # on pool pods: the result of `build` when the pod was created
ANNOTATION_AVOIDS = f"{names.GROUP}/avoids"  # nodes at their limit of starts when the pod was created


def pool_pod(
    pool: SandboxPool, *, instance_id: str, token: str, settings: Settings, avoid: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a warm pod, without an owner reference, since it outlives its pool once claimed.

    `avoid`: nodes at their limit of starts; the scheduler chooses among the others.
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
    """Return the pod of a cold start, with its resource's name and deleted with it."""
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
    """Return a hash that changes when the template, the sidecar or a setting would change the pod."""
    pod = _pod(template, instance_id="", token="", settings=settings)
    return hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:16]


def avoided(metadata: Metadata) -> frozenset[str]:
    """Return the nodes that this pod may not use, although they may have room by now."""
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
    # The default class is gVisor's; any other may be an ordinary runtime, for GPUs say.
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
    # In a kernel of the pod's own, the sidecar enforces the memory limit of a command, which takes a moment. Without
    # headroom the node would kill the whole pod meanwhile.
    headroom = settings.memory_headroom if own_kernel else 0
    limits = {
        "cpu": _cores(template.cpu),
        "memory": str(template.memory + headroom),
        "ephemeral-storage": str(template.disk),
    }
    requests = dict(limits)
    # Without a request, Kubernetes would request a resource's whole limit.
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
            # With a raw socket, code could read the sidecar's tokens and forge its responses on the pod's network.
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
    """Return the init container; it ends before the others start, so it gets no more resources than the sidecar."""
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
    # Both limits are needed: if one container has none, gVisor's one cgroup for all has none either. The pod's disk
    # limit is the sum of its containers', including volumes: this is the slack of the state volume.
    # In a kernel of its own, code can use the sidecar's CPU limit, too: with a whole core it had two cores for its one.
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
    """Return the tolerations, with our own grace for unreachable nodes in place of the default 300 s."""
    given = [one.model_dump(exclude_none=True) for one in settings.tolerations]
    for one in given:
        if one.get("key") in (None, _UNREACHABLE) and one.get("effect") in (None, "NoExecute"):
            return given
    seconds = math.ceil(settings.node_grace)
    ours = {"key": _UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return [*given, ours]


def _cores(value: float) -> str:
    return f"{math.ceil(round(value * 1000, 6))}m"
