"""Which Sandbox claims which pod, by the records of claims and by what sidecars report of claims without one."""

from __future__ import annotations

from collections.abc import Callable

from sandlot_kube.objects import Sandbox, SandboxPhase


class Claims:
    """Claims by pod. A reused pod has one owner after the other; the record of each names its generation."""

    def __init__(self, *, clock: Callable[[], float], exists: Callable[[str], bool]) -> None:
        """`exists`: whether there is a pod of this name."""
        self._clock = clock
        self._exists = exists
        self._listed = False  # the pods; before, one that is not there may exist
        self.recorded: dict[str, str] = {}  # pod -> the Sandbox that names it or has its name
        self.unrecorded_since: dict[str, float] = {}  # claimed pod without a Sandbox -> since when we know
        # reused pods among those -> the claimed generation, if it is known
        self._unrecorded: dict[str, int] = {}
        # pod -> the Sandboxes that name it, with their generations, of each generation that has not ended
        self._claimants: dict[str, dict[str, int]] = {}
        self._ended: dict[str, int] = {}  # reused pod -> the last generation whose Sandbox has ended

    def claimants(self, pod: str) -> list[str]:
        return list(self._claimants.get(pod, ()))

    def put(self, sandbox: Sandbox) -> None:
        """Add or replace a record."""
        pod, generation = sandbox.instance_id, sandbox.spec.generation
        claimants = self._claimants.setdefault(pod, {})
        if generation is not None and sandbox.status.phase is SandboxPhase.ENDED:
            claimants.pop(sandbox.metadata.name, None)
            self._ended[pod] = max(generation, self._ended.get(pod, 0))
        else:
            claimants[sandbox.metadata.name] = generation or 0
        self._choose(pod)
        if self._is_missing_record(sandbox):
            self.release(pod)

    def drop(self, sandbox: Sandbox) -> bool:
        """Remove a record; return whether the pod was claimed by it."""
        pod = sandbox.instance_id
        was_claim = self.recorded.get(pod) == sandbox.metadata.name
        self._claimants.get(pod, {}).pop(sandbox.metadata.name, None)
        self._choose(pod)
        return was_claim

    def put_unrecorded(self, pod: str, generation: int | None) -> None:
        """Add a claim that no Sandbox records, of this generation if that is known."""
        self.unrecorded_since.setdefault(pod, self._clock())
        if generation is not None:
            self._unrecorded[pod] = generation

    def release(self, pod: str) -> bool:
        """Remove a claim that no Sandbox records; return whether there was one."""
        self._unrecorded.pop(pod, None)
        return self.unrecorded_since.pop(pod, None) is not None

    def pods_listed(self) -> None:
        """Take the pods that are not there for gone, from now on."""
        self._listed = True
        for pod in list(self._ended):
            self._forget_end(pod)

    def pod_gone(self, pod: str) -> None:
        self.release(pod)
        self._ended.pop(pod, None)

    def _choose(self, pod: str) -> None:
        """Choose the Sandbox that has the pod: the one of the latest generation, unless that has ended."""
        claimants = self._claimants.get(pod, {})
        name = max(claimants, key=claimants.__getitem__, default=None)
        if name is not None and (not claimants[name] or claimants[name] > self._ended.get(pod, 0)):
            self.recorded[pod] = name
        else:
            self.recorded.pop(pod, None)
        if not claimants:
            self._claimants.pop(pod, None)
            self._forget_end(pod)

    def _forget_end(self, pod: str) -> None:
        if self._listed and pod not in self._claimants and not self._exists(pod):
            self._ended.pop(pod, None)

    def _is_missing_record(self, sandbox: Sandbox) -> bool:
        """Return whether a Sandbox records the claim that had no record, and not an earlier one of a reused pod."""
        pod, generation = sandbox.instance_id, sandbox.spec.generation
        if generation is None:
            return True
        claimed = self._unrecorded.get(pod)
        return self.recorded.get(pod) == sandbox.metadata.name if claimed is None else generation >= claimed
