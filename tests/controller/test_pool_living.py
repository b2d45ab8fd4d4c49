"""The living pods of pools: whatever the watches have told, in whatever order, they are as if looked at all anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from sandlot_contract import names
from sandlot_controller.api import Api
from sandlot_controller.metrics import Metrics
from sandlot_controller.objects import Node
from sandlot_controller.pool_deaths import PoolDeaths
from sandlot_controller.pool_living import Living
from sandlot_controller.pool_plan import Planner
from sandlot_controller.settings import Settings
from sandlot_controller.world import World
from sandlot_kube.access import Access
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Pod, Sandbox

SETTINGS = Settings(namespace="n", key_file=Path("/nonexistent"), webhook_url="http://g/", sidecar_image="s")  # pyright: ignore[reportCallIssue]
PODS, POOLS, NODES = ("i-1", "i-2", "i-3"), ("p", "q"), ("n-1", "n-2")
TEMPLATE = {"image": "x", "cpu": 1, "memory": 1, "disk": 1, "pids": 1}


def pod(name: str, pool: str, node: str | None, *, ready: bool, leaves: bool) -> Pod:
    metadata: dict[str, Any] = {"name": name, "uid": name, "labels": {names.LABEL_POOL: pool}}
    if leaves:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True"}] if ready and node else []
    status = {"phase": "Running" if conditions else "Pending", "conditions": conditions}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, "status": status}, Pod)


def node(name: str, word: str) -> Node:
    conditions = [{"type": "Ready", "status": word}]
    return msgspec.convert({"metadata": {"name": name}, "status": {"conditions": conditions}}, Node)


def sandbox(name: str) -> Sandbox:
    spec = {"template": TEMPLATE, "podName": name, "sandboxId": f"sb-{name}"}
    return msgspec.convert({"metadata": {"name": f"sb-{name}"}, "spec": spec}, Sandbox)


some_pod = st.sampled_from(PODS)
events = st.one_of(
    st.tuples(st.just("pod"), some_pod, st.sampled_from([None, *NODES]), st.booleans(), st.booleans()),
    st.tuples(st.just("gone"), some_pod),
    st.tuples(st.just("claim"), some_pod),
    st.tuples(st.just("word"), some_pod),
    st.tuples(st.just("release"), some_pod),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(["True", "False", "Unknown"])),
    st.tuples(st.just("look")),
)


def tell(world: World, event: tuple[Any, ...]) -> None:
    match event:
        case ("pod", name, where, ready, leaves):
            pool = POOLS[PODS.index(name) % len(POOLS)]
            world.pod_changed(pod(name, pool, where, ready=ready, leaves=leaves))
        case ("gone", name) if name in world.pods:
            world.pod_deleted(world.pods[name])
        case ("claim", name):
            world.sandbox_changed(sandbox(name))
        case ("word", name):
            world.claimed_by_word(name)
        case ("release", name) if f"sb-{name}" in world.sandboxes:
            world.sandbox_deleted(world.sandboxes[f"sb-{name}"])
        case ("node", name, word):
            world.node_changed(node(name, word))
        case _:
            pass


@given(st.lists(events, max_size=25))
def test_what_is_kept_is_what_a_look_at_everything_finds(told: list[tuple[Any, ...]]) -> None:
    now = 1.0  # within every grace: nothing is late, and nothing is taken away
    world = World(clock=lambda: now)
    api = Api(KubeClient(Access("http://nowhere", None)), namespace="n", metrics=Metrics())
    deaths = PoolDeaths(world, api, planner=Planner(), settings=SETTINGS)

    def living() -> Living:
        return Living(world, deaths, claimed=lambda *_: None, ready=lambda *_: None)

    kept = living()
    begun = [("node", name, "True") for name in NODES] + [("pod", name, "n-1", True, False) for name in PODS]
    for event in [*begun, ("look",), *told]:
        if event == ("look",):
            kept.now(now)
        tell(world, event)
    anew = living()
    for name in world.pods:
        anew.changed(name)
    found, wanted = kept.now(now), anew.now(now)
    assert found.keys() == wanted.keys()
    for pool, pods in wanted.items():
        for group in ("ready", "starting", "claimed"):
            assert getattr(found[pool], group) == getattr(pods, group)
        for build in ("", "other"):
            assert {view.name for view in found[pool].outdated(build)} == {
                view.name for view in pods.outdated(build)
            }
            for ready in (True, False):
                assert found[pool].count(build, ready=ready) == pods.count(build, ready=ready)
