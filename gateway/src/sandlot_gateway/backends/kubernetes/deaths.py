"""Tells from a pod that it is over, and a reason for the case that the controller does not give one."""

from __future__ import annotations

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
    if pod is None:
        return "sandbox_lost", "the pod is gone"
    status = pod.status
    ended = [
        f"{container.name} ended with {container.state.terminated.exit_code} ({container.state.terminated.reason})"
        for container in pod.status.container_statuses
        if container.state.terminated is not None
    ]
    texts = [text for text in (status.reason, status.message, *ended) if text]
    message = "; ".join(texts) or "the pod was deleted"
    if status.reason == "Evicted":
        return "evicted", message
    return "sandbox_lost" if started else "start_failed", message
