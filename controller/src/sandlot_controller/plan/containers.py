"""Builds the containers of an instance's pod, and the volumes that they mount."""

from __future__ import annotations

import json
import math
from typing import Any

from sandlot_contract import names
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.sidecar import CONFIG_VARIABLE, TARGET_VARIABLE
from sandlot_kube.template import Template

from ..settings import Settings

STATE_DIR = "/run/sandlot"
_STATE_VOLUME = "state"
TLS_DIR = "/etc/sandlot/tls"
_TLS_VOLUME = "tls"
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
_IMAGES_VOLUME = "images"
# Cores a sidecar may use in a pod with a kernel of its own, such as gVisor's.
_CORES_IN_A_KERNEL = 0.2
# gVisor or the sidecar must notice a full disk first, as they give a verdict; with equal limits the kubelet would evict
# the pod at the same moment. The sidecar's kept output has the same room.
_STATE_SLACK = 1 << 30


def volumes(template: Template, *, settings: Settings) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"name": _STATE_VOLUME, "emptyDir": {"sizeLimit": str(_STATE_SLACK)}},
        {"name": _FILES_VOLUME, "emptyDir": {"sizeLimit": str(template.disk + _STATE_SLACK)}},
    ]
    if settings.holder == "copy":
        made.append({"name": _HOLDER_VOLUME, "emptyDir": {"sizeLimit": str(_HOLDER_SIZE)}})
    else:
        image = {"reference": settings.sidecar_image, "pullPolicy": settings.sidecar_pull_policy}
        made.append({"name": _HOLDER_VOLUME, "image": image})
    if (directory := images_directory(template, settings=settings)) is not None:
        # Created where the node's agent has not run yet: what it mounts there appears in the pod all the same.
        path = {"path": directory, "type": "DirectoryOrCreate"}
        made.append({"name": _IMAGES_VOLUME, "hostPath": path})
    if settings.sidecar_tls_secret is not None:
        secret = {"secretName": settings.sidecar_tls_secret, "defaultMode": 0o400}
        made.append({"name": _TLS_VOLUME, "secret": secret})
    return made


def hints(template: Template) -> dict[str, str]:
    """Return the annotations that let gVisor keep the sandbox's files itself."""
    return {
        f"{_HINT}.type": "bind",
        f"{_HINT}.share": "pod",
        f"{_HINT}.options": f"rw,size={template.disk}",
    }


def sandbox(template: Template, *, instance_id: str, settings: Settings, own_kernel: bool) -> dict[str, Any]:
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
        "image": template.image or settings.sidecar_image,
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
    policy = settings.image_pull_policy if template.image else settings.sidecar_pull_policy
    if policy:
        container["imagePullPolicy"] = policy
    return container


def images_directory(template: Template, *, settings: Settings) -> str | None:
    """Return where the images are that claims lay under this pod, or None if it keeps its own.

    The node puts the driver of a GPU into the container: over another image a sandbox would have its devices alone.
    """
    return None if template.gpu_count else settings.images_directory


def sidecar(
    config: dict[str, Any], *, images: str | None, settings: Settings, own_kernel: bool
) -> dict[str, Any]:
    """`images`: the directory of those that claims lay."""
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
    mounts: list[dict[str, Any]] = [
        {"name": _STATE_VOLUME, "mountPath": STATE_DIR},
        {"name": _FILES_VOLUME, "mountPath": FILES_DIR},
    ]
    if images is not None:
        # In the sidecar only: user code sees its own image, never the directory.
        mounts.append(
            {
                "name": _IMAGES_VOLUME,
                "mountPath": images,
                "readOnly": True,
                "mountPropagation": "HostToContainer",
            }
        )
    if settings.sidecar_tls_secret is not None:
        # In the sidecar only, and whole: a `subPath` would never be renewed.
        mounts.append({"name": _TLS_VOLUME, "mountPath": TLS_DIR, "readOnly": True})
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
        "volumeMounts": mounts,
    }


def holder_copy(sidecar: dict[str, Any], *, settings: Settings) -> dict[str, Any]:
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


def _holder_mount(settings: Settings) -> dict[str, Any]:
    mount = {"name": _HOLDER_VOLUME, "mountPath": HOLDER_DIR, "readOnly": True}
    return mount if settings.holder == "copy" else {**mount, "subPath": _HOLDER_IN_IMAGE}


def _cores(value: float) -> str:
    return f"{math.ceil(round(value * 1000, 6))}m"
