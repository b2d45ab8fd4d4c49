"""The pool of lives_kubernetes.py whose pods are reset, and what its controller does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from sandlot_contract import names
from sandlot_contract.reuse import ReusePolicy
from sandlot_kube import reuse, template, verdicts
from sandlot_kube.objects import Pod, PoolReuse

from tests.gateway.api_server import PODS, POOLS, SANDBOXES, ApiServer

if TYPE_CHECKING:
    from tests.gateway.lives_kubernetes import KubernetesWorld

_RESET_GRACE = 30.0  # seconds for a reset after an end
_NAME, _SIZE = "reused", 2


def add(api: ApiServer, *, image: str) -> None:
    spec = {
        "template": {"image": image},
        "size": _SIZE,
        "reuse": {"policy": ReusePolicy.TENANT},
    }
    api.put(POOLS, _NAME, {"metadata": {"name": _NAME}, "spec": spec, "status": {}})


def control(world: KubernetesWorld) -> None:
    """Delete dead pods that no Sandbox has, and keep the pool at its size."""
    live, ended = _generations(world)
    warm = 0
    for name, pod in list(world.api.objects[PODS].items()):
        if names.LABEL_POOL not in pod["metadata"]["labels"]:
            continue
        claimed = live.get(name, 0) > ended.get(name, 0)
        found = verdicts.of_pod(msgspec.convert(pod, Pod))
        if found is None:
            warm += not claimed
            if not claimed:
                _check_reset(world, name, ended.get(name, 0))
        elif not claimed and world.is_over(name, found):
            world.delete_pod(name)
    for _ in range(_SIZE - warm):
        _make_pod(world)


def _make_pod(world: KubernetesWorld) -> None:
    text = template.encode(template.Template(world.gateway.image))
    policy = reuse.marks(PoolReuse(policy=ReusePolicy.TENANT))
    annotations = {names.ANNOTATION_TEMPLATE: text, **policy}
    world.put_pod(f"i-{world.new_id(8)}", {names.LABEL_POOL: _NAME}, annotations)


def _generations(world: KubernetesWorld) -> tuple[dict[str, int], dict[str, int]]:
    """The last generation of each pod whose Sandbox lives, and the last whose Sandbox has ended."""
    live: dict[str, int] = {}
    ended: dict[str, int] = {}
    for name in world.api.objects[SANDBOXES]:
        sandbox = world.sandbox(name)
        generation, pod = sandbox.spec.generation, sandbox.spec.pod_name
        if generation is not None and pod is not None:
            known = ended if sandbox.status.phase == "Ended" else live
            known[pod] = max(generation, known.get(pod, 0))
    return live, ended


def _check_reset(world: KubernetesWorld, pod: str, generation: int) -> None:
    """End a pod that nobody has reset after the end of its sandbox."""
    known, since = world.kept_since.get(pod, (0, 0.0))
    if known != generation:
        world.kept_since[pod] = generation, world.loop.time()
        return
    sidecar = world.sidecars[pod]
    if sidecar.generation == generation and world.loop.time() >= since + _RESET_GRACE:
        world.call_end(sidecar, {"verdict": "deleted", "only_of": sidecar.owner})
