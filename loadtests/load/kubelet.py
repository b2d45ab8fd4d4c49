"""What the parts of a cluster use, as its kubelets tell: CPU and memory by container, of pods that come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from loadtests.load.sampling import Usage

GATEWAY_SIDE = frozenset({"gateway", "controller"})
BARE = "bare"  # how the names of pods begin that have nothing of ours in them
CONTROL_PLANE = frozenset({"kube-apiserver", "etcd"})


class _Cpu(msgspec.Struct, rename="camel"):
    usage_core_nano_seconds: int = 0


class _Memory(msgspec.Struct, rename="camel"):
    working_set_bytes: int = 0


class _Container(msgspec.Struct):
    name: str
    cpu: _Cpu | None = None
    memory: _Memory | None = None


class _Reference(msgspec.Struct):
    name: str
    namespace: str
    uid: str = ""


class _Pod(msgspec.Struct, rename="camel"):
    pod_ref: _Reference
    containers: list[_Container] = []
    cpu: _Cpu | None = None
    memory: _Memory | None = None


class NodeStats(msgspec.Struct):
    """The answer of a kubelet's `/stats/summary`, as far as it is used here."""

    pods: list[_Pod] = []


class Account:
    """Adds up CPU over pods that end, whose own counters end with them. Namespaces say whose pods they are."""

    def __init__(self, *, parts: str, sandboxes: str) -> None:
        self._parts = parts
        self._sandboxes = sandboxes
        self._seen: dict[tuple[str, str], float] = {}
        self._totals: dict[str, float] = {}
        self._first = True

    def add(self, nodes: Iterable[NodeStats]) -> dict[str, Usage]:
        """One look at all nodes: what each part uses, with its CPU seconds since the first look."""
        found: dict[str, Usage] = {}
        for node in nodes:
            for pod in node.pods:
                for name, part, cpu, memory in self._rows(pod):
                    key = (pod.pod_ref.uid or pod.pod_ref.name, name)
                    before = self._seen.get(key, cpu if self._first else 0.0)
                    # A counter that went back belongs to a container that was started again.
                    self._totals[part] = self._totals.get(part, 0.0) + (
                        cpu - before if cpu >= before else cpu
                    )
                    self._seen[key] = cpu
                    usage = found.setdefault(part, Usage(cpu=0.0, memory=0, processes=0))
                    usage.memory += memory
                    usage.processes += 1
        for part, usage in found.items():
            usage.cpu = round(self._totals[part], 3)
        self._first = False
        return found

    def _rows(self, pod: _Pod) -> Iterable[tuple[str, str, float, int]]:
        """(name, part, CPU seconds, bytes) of the containers that count."""
        known = self._names(pod.pod_ref)
        told = False
        for container in pod.containers:
            if container.name in known and container.cpu is not None:
                told = True
                yield container.name, known[container.name], *_numbers(container.cpu, container.memory)
        # A runtime that keeps one account for the whole pod, as gVisor does, tells nothing of containers.
        whole = "sandboxes" if pod.pod_ref.namespace == self._sandboxes else known.get("", "")
        if whole and not told and pod.cpu is not None:
            yield "", whole, *_numbers(pod.cpu, pod.memory)

    def _names(self, pod: _Reference) -> Mapping[str, str]:
        namespace = pod.namespace
        if namespace == self._sandboxes:
            return {"sidecar": "sidecars", "sandbox": "sandboxes"}
        if namespace == self._parts and pod.name.startswith(BARE):
            return dict.fromkeys(("", "sidecar", "sandbox"), BARE)
        if namespace == self._parts:
            return {name: name for name in GATEWAY_SIDE}
        return {name: name for name in CONTROL_PLANE} if namespace == "kube-system" else {}


def _numbers(cpu: _Cpu, memory: _Memory | None) -> tuple[float, int]:
    return cpu.usage_core_nano_seconds / 1e9, memory.working_set_bytes if memory is not None else 0
