"""Derives from a pod and its node whether the sandbox is lost, why, and whether the gateway may know better."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_contract import names
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_kube.objects import ContainerStatus, Pod, PodPhase

IMAGE_REASONS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
}
START_REASONS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}
# Reasons of evictions: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTIONS = {
    "DeletionByTaintManager": SandboxVerdict.NODE_LOST,
    "DeletionByPodGC": SandboxVerdict.NODE_LOST,
    "EvictionByEvictionAPI": SandboxVerdict.EVICTED,
    "PreemptionByScheduler": SandboxVerdict.EVICTED,
    "TerminationByKubelet": SandboxVerdict.EVICTED,
}
# Rejected by the kubelet's admission: the pod never started.
_REFUSED = {"OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError", "NodePorts"}


@dataclass(frozen=True, slots=True)
class Verdict:
    verdict: SandboxVerdict
    message: str
    exit_code: int | None = None
    # A sidecar that exited in order has told the gateway why, and the other container may end with it; this verdict
    # counts only if neither of them reports more.
    certain: bool = True


# The sidecar's own verdict after a SIGTERM, so both sources agree.
_DELETED = Verdict(SandboxVerdict.EVICTED, "the pod was deleted")


def of_pod(pod: Pod) -> Verdict | None:
    """Return why the pod is lost, or None if nothing is wrong with it."""
    status = pod.status
    disruption = pod.condition("DisruptionTarget")
    if (
        disruption is not None
        and disruption.status == "True"
        and (kind := _DISRUPTIONS.get(disruption.reason or ""))
    ):
        return Verdict(kind, disruption.message or disruption.reason or "the pod was disrupted")
    reason = status.reason or ""
    if reason in {"Evicted", "Preempting", "Terminated", "NodeShutdown"}:
        return Verdict(SandboxVerdict.EVICTED, status.message or reason)
    if reason == "NodeLost":
        return Verdict(SandboxVerdict.NODE_LOST, status.message or reason)
    if status.phase == PodPhase.FAILED and (reason in _REFUSED or reason.startswith("OutOf")):
        return Verdict(
            SandboxVerdict.START_FAILED, f"{reason}: {status.message or 'the node rejected the pod'}"
        )
    # Before the containers, whose ends are a consequence and say nothing.
    if pod.metadata.deletion_timestamp is not None:
        return _DELETED
    sandbox = pod.container(names.CONTAINER_SANDBOX)
    sidecar = pod.container(names.CONTAINER_SIDECAR)
    for container in (sandbox, sidecar):
        if container is not None and (found := _waiting(container)):
            return found
    if (found := _ended(sandbox=sandbox, sidecar=sidecar)) is not None:
        return found
    if status.phase == PodPhase.FAILED:
        return Verdict(SandboxVerdict.SANDBOX_LOST, status.message or reason or "the pod failed")
    if status.phase == PodPhase.SUCCEEDED:
        return Verdict(SandboxVerdict.SANDBOX_LOST, "the pod ended", certain=False)
    return None


def of_deleted_pod(pod: Pod) -> Verdict:
    """Return the verdict of a deleted pod as last seen; a deletion without grace leaves no trace on it."""
    return of_pod(pod) or _DELETED


def of_missing_pod() -> Verdict:
    """Return the verdict for a pod that vanished unseen."""
    return Verdict(SandboxVerdict.SANDBOX_LOST, "the pod is gone")


def of_slow_start(pod: Pod, *, seconds: float) -> Verdict:
    """Return the verdict for a pod that did not run in time, with what it waited for."""
    scheduled = pod.condition("PodScheduled")
    if pod.spec.node_name is None and scheduled is not None and scheduled.message:
        why = scheduled.message
    else:
        waiting = [status.state.waiting for status in pod.status.container_statuses if status.state.waiting]
        texts = [f"{one.reason or 'waiting'}: {one.message or ''}".rstrip(": ") for one in waiting]
        why = "; ".join(texts) or "no container has started"
    return Verdict(SandboxVerdict.START_FAILED, f"not running within {seconds:g} s: {why}")


def of_lost_node(name: str, *, seconds: float) -> Verdict:
    return Verdict(
        SandboxVerdict.NODE_LOST,
        f"node {name} did not report for {seconds:g} s after it became unreachable",
    )


def of_lost_gateway() -> Verdict:
    return Verdict(
        SandboxVerdict.START_FAILED,
        "the gateway that accepted the create was lost: create the sandbox again",
    )


def _waiting(container: ContainerStatus) -> Verdict | None:
    waiting = container.state.waiting
    if waiting is None or not waiting.reason:
        return None
    text = f"{container.name}: {waiting.message or waiting.reason}"
    if waiting.reason in IMAGE_REASONS:
        return Verdict(SandboxVerdict.IMAGE_PULL, text)
    if waiting.reason in START_REASONS:
        return Verdict(SandboxVerdict.START_FAILED, text)
    return None


def _ended(*, sandbox: ContainerStatus | None, sidecar: ContainerStatus | None) -> Verdict | None:
    """Check the sandbox's container first: its end ends the sidecar, but not the other way round."""
    target = sandbox.state.terminated if sandbox else None
    ours = sidecar.state.terminated if sidecar else None
    starved = ours is not None and ours.reason == "OOMKilled"
    # Under gVisor both share one kernel, killed for what the sandbox used, and the node may report only one of them.
    if target is not None and (target.reason == "OOMKilled" or starved):
        return Verdict(
            SandboxVerdict.OOM, "the sandbox's container reached its memory limit", target.exit_code
        )
    for container, terminated in (("sandbox", target), ("sidecar", ours)):
        if terminated is not None and terminated.reason in START_REASONS | {"ContainerCannotRun"}:
            return Verdict(
                SandboxVerdict.START_FAILED, f"{container}: {terminated.message or terminated.reason}"
            )
    if target is not None:
        text = f"the sandbox container's main process exited with {target.exit_code}"
        return Verdict(
            SandboxVerdict.SANDBOX_LOST,
            f"{text}: {target.message}" if target.message else text,
            target.exit_code,
        )
    if ours is not None:
        how = "reached its memory limit" if starved else f"ended with {ours.exit_code}"
        return Verdict(
            SandboxVerdict.SIDECAR_LOST, f"the sidecar {how}", certain=ours.exit_code != 0 and not starved
        )
    return None
