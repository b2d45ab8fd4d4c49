"""Tells from a pod (and its node) that it is lost, why, and whether the gateway may know better."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_contract import names
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_kube.objects import ContainerStatus, Pod, PodPhase

_IMAGE_REASONS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
}
_START_REASONS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}
# Why the API took a pod: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTIONS = {
    "DeletionByTaintManager": SandboxVerdict.NODE_LOST,
    "DeletionByPodGC": SandboxVerdict.NODE_LOST,
    "EvictionByEvictionAPI": SandboxVerdict.EVICTED,
    "PreemptionByScheduler": SandboxVerdict.EVICTED,
    "TerminationByKubelet": SandboxVerdict.EVICTED,
}
# Admission by the kubelet: the pod never began.
_REFUSED = {"OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError", "NodePorts"}


@dataclass(frozen=True, slots=True)
class Verdict:
    verdict: SandboxVerdict
    message: str
    exit_code: int | None = None
    # A sidecar that ended in order has told the gateway why, and a container's end may follow the other's; only if
    # neither tells more does this count.
    certain: bool = True


# As its sidecar says of a SIGTERM: whoever is asked first, the verdict is the same.
_DELETED = Verdict(SandboxVerdict.EVICTED, "the pod was deleted")


def of_pod(pod: Pod) -> Verdict | None:
    """None: nothing is known to be wrong with it."""
    status = pod.status
    disruption = pod.condition("DisruptionTarget")
    if (
        disruption is not None
        and disruption.status == "True"
        and (kind := _DISRUPTIONS.get(disruption.reason or ""))
    ):
        return Verdict(kind, disruption.message or disruption.reason or "taken away")
    reason = status.reason or ""
    if reason in {"Evicted", "Preempting", "Terminated", "NodeShutdown"}:
        return Verdict(SandboxVerdict.EVICTED, status.message or reason)
    if reason == "NodeLost":
        return Verdict(SandboxVerdict.NODE_LOST, status.message or reason)
    if status.phase == PodPhase.FAILED and (reason in _REFUSED or reason.startswith("OutOf")):
        return Verdict(
            SandboxVerdict.START_FAILED, f"{reason}: {status.message or 'the node refused the pod'}"
        )
    # Before the containers: they end because of it, and how they do says nothing.
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
    """As it was last seen; a deletion without grace leaves no mark on it."""
    return of_pod(pod) or _DELETED


def of_missing_pod() -> Verdict:
    """For one that nobody saw go."""
    return Verdict(SandboxVerdict.SANDBOX_LOST, "the pod is gone")


def of_slow_start(pod: Pod, *, seconds: float) -> Verdict:
    """For a pod that was not running in time; says what it waited for."""
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
        f"nothing was heard of node {name} for {seconds:g} s after it was found silent",
    )


def of_lost_gateway() -> Verdict:
    return Verdict(
        SandboxVerdict.START_FAILED,
        "the gateway that answered the create is lost, and nobody else can go on with it",
    )


def _waiting(container: ContainerStatus) -> Verdict | None:
    waiting = container.state.waiting
    if waiting is None or not waiting.reason:
        return None
    text = f"{container.name}: {waiting.message or waiting.reason}"
    if waiting.reason in _IMAGE_REASONS:
        return Verdict(SandboxVerdict.IMAGE_PULL, text)
    if waiting.reason in _START_REASONS:
        return Verdict(SandboxVerdict.START_FAILED, text)
    return None


def _ended(*, sandbox: ContainerStatus | None, sidecar: ContainerStatus | None) -> Verdict | None:
    """The sandbox's container goes first: its end takes the sidecar along, the sidecar's end does not take it."""
    target = sandbox.state.terminated if sandbox else None
    ours = sidecar.state.terminated if sidecar else None
    starved = ours is not None and ours.reason == "OOMKilled"
    # Under gVisor one kernel has both: it is killed for what the sandbox used, and the node may say so of one only.
    if target is not None and (target.reason == "OOMKilled" or starved):
        return Verdict(
            SandboxVerdict.OOM, "the sandbox's container reached its memory limit", target.exit_code
        )
    for container, terminated in (("sandbox", target), ("sidecar", ours)):
        if terminated is not None and terminated.reason in _START_REASONS | {"ContainerCannotRun"}:
            return Verdict(
                SandboxVerdict.START_FAILED, f"{container}: {terminated.message or terminated.reason}"
            )
    if target is not None:
        text = f"the sandbox's main process ended with {target.exit_code}"
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
