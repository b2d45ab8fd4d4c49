"""Derives from a pod's status why it does not run: its image, its configuration, a crash, no node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import times
from .doc import Doc

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
SLOW = 120.0  # seconds after which a start is no longer only under way


@dataclass(frozen=True, slots=True)
class Wait:
    """`of`: image, config, crash, schedule or start."""

    namespace: str
    pod: str
    of: str
    text: str


def waits(pod: Doc, *, now: float) -> Iterator[Wait]:
    """Yield what holds the pod up. One without a node, or not ready yet, counts only after a while."""
    if pod.text("metadata", "deletionTimestamp"):
        return
    created = pod.text("metadata", "creationTimestamp")
    scheduled = pod.condition("PodScheduled")
    if scheduled.text("status") == "False":
        # A node may join, and a pod may end, that makes room.
        if times.age(scheduled.text("lastTransitionTime") or created, now=now) <= SLOW:
            return
        text = f"{scheduled.text('reason')}: {scheduled.text('message')}"
        yield Wait(pod.namespace, pod.name, "schedule", text)
        return
    found = False
    for container in pod.docs("status", "initContainerStatuses") + pod.docs("status", "containerStatuses"):
        if (wait := _wait(pod, container)) is not None:
            found = True
            yield wait
    old = times.age(created, now=now)
    ready = pod.condition("Ready").text("status") == "True"
    if not found and not ready and old > SLOW and pod.text("status", "phase") in ("", "Pending", "Running"):
        yield Wait(pod.namespace, pod.name, "start", f"not ready {times.spoken(old)} after its creation")


def _wait(pod: Doc, container: Doc) -> Wait | None:
    waiting = container.doc("state", "waiting")
    reason, name = waiting.text("reason"), container.text("name")
    text = f"{name}: {reason}: {waiting.text('message')}".removesuffix(": ")
    if reason in IMAGE_REASONS:
        return Wait(pod.namespace, pod.name, "image", f"{name}: {reason}: {_image(container, waiting)}")
    if reason in START_REASONS:
        return Wait(pod.namespace, pod.name, "config", text)
    if reason == "CrashLoopBackOff":
        last = container.doc("lastState", "terminated")
        ended = f"ended with {last.text('exitCode')} ({last.text('reason')})" if last.raw else "ended"
        return Wait(
            pod.namespace,
            pod.name,
            "crash",
            f"{name}: {reason}: {ended}, {container.text('restartCount')} restarts",
        )
    return None


def _image(container: Doc, waiting: Doc) -> str:
    """Return the message, with the image's name, which not every message has."""
    message, image = waiting.text("message"), container.text("image")
    return message if image in message else f"{image}: {message}".removesuffix(": ")
