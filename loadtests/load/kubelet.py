"""CPU and memory use of a cluster's parts from its kubelets, also of short-lived pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from loadtests.load.sampling import Usage

GATEWAY_SIDE = frozenset({"gateway", "controller"})
BARE = "bare"  # name prefix of the bare pods
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
    """The fields of a kubelet's `/stats/summary` that are used here."""

    pods: list[_Pod] = []


class Account:
    """Sums CPU across pods, including ended ones, whose counters vanish. Namespaces tell parts from sandboxes."""

    def __init__(self, *, parts: str, sandboxes: str) -> None:
        self._parts = parts
        self._sandboxes = sandboxes
        self._seen: dict[tuple[str, str], float] = {}
        self._totals: dict[str, float] = {}
        self._first = True

    def add(self, nodes: Iterable[NodeStats]) -> dict[str, Usage]:
        """Add a sample of all nodes; return each part's use, with its CPU seconds since the first sample."""
        found: dict[str, Usage] = {}
        for node in nodes:
            for pod in node.pods:
                for name, part, cpu, memory in self._rows(pod):
                    key = (pod.pod_ref.uid or pod.pod_ref.name, name)
                    before = self._seen.get(key, cpu if self._first else 0.0)
                    # A counter that decreased belongs to a restarted container.
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
        """Yield (name, part, CPU seconds, bytes) of the containers that count."""
        known = self._names(pod.pod_ref)
        told = False
        for container in pod.containers:
            if container.name in known and container.cpu is not None:
                told = True
                yield container.name, known[container.name], *_numbers(container.cpu, container.memory)
        # gVisor accounts for the whole pod and reports nothing per container.
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
