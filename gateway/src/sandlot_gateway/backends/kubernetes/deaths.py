"""Tells from a pod that it is over, and a reason for the case that the controller does not give one."""

from __future__ import annotations

from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import verdicts
from sandlot_kube.objects import Pod


def is_over(pod: Pod) -> bool:
    """It ends, or a container of it has: neither is ever started again."""
    return (
        pod.metadata.deletion_timestamp is not None
        or pod.status.phase in ("Failed", "Succeeded")
        or any(container.state.terminated for container in pod.status.container_statuses)
    )


def death_of(pod: Pod | None, *, started: bool) -> tuple[str, str]:
    """Verdict and message; `pod` as it was last seen, None when it is not there any more."""
    found = verdicts.of_missing_pod() if pod is None else verdicts.of_deleted_pod(pod)
    lost = found.verdict in (SandboxVerdict.SANDBOX_LOST, SandboxVerdict.SIDECAR_LOST)
    return SandboxVerdict.START_FAILED if lost and not started else found.verdict, found.message
