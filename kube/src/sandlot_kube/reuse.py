"""Marks the pods that run one sandbox after the other: a pod stays what it was created as."""

from __future__ import annotations

from sandlot_contract.names import ANNOTATION_REUSE
from sandlot_contract.reuse import ReusePolicy

from sandlot_kube.objects import Pod, PoolReuse


def marks(reuse: PoolReuse) -> dict[str, str]:
    """Return the annotations of a pod under this policy; empty if the pod runs a single sandbox."""
    return {ANNOTATION_REUSE: reuse.policy} if reuse.policy == ReusePolicy.TENANT else {}


def is_reused(pod: Pod) -> bool:
    """Return whether the pod runs one sandbox after the other."""
    return ANNOTATION_REUSE in pod.metadata.annotations
