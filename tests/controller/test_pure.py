"""What a pod's death means, what a Sandbox needs next, how big a pool should be, what a status says: all without I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_controller import sandbox_plan, status
from sandlot_controller.autoscale import Demand
from sandlot_controller.objects import Node, is_silent, is_usable
from sandlot_controller.sandbox_plan import Create, Drop, End, Facts, Run, Tell
from sandlot_controller.settings import BadSettings, Settings, Toleration, load
from sandlot_controller.status import PoolCounts
from sandlot_controller.timers import Timers
from sandlot_controller.tokens import InstanceTokens
from sandlot_kube import clock, verdicts
from sandlot_kube.objects import Pod, Sandbox, SandboxPool
from sandlot_kube.verdicts import Verdict

SETTINGS = Settings(
    namespace="sandboxes", key_file=Path("/none"), webhook_url="http://g/internal/sidecar", sidecar_image="s"
)


def pod(*, node: str | None = "n1", **said: Any) -> Pod:
    body = {"metadata": {"name": "i-1"}, "spec": {"nodeName": node}, "status": said}
    return msgspec.convert(body, Pod)


def container(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


def sandbox(*, said: dict[str, Any] | None = None, **spec: Any) -> Sandbox:
    body = {
        "metadata": {"name": "i-1", "uid": "u", "generation": 2},
        "spec": {"template": {"image": "x"}, **spec},
        "status": said or {},
    }
    return msgspec.convert(body, Sandbox)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(BadSettings, match="SANDLOT_KEY_FILE"):
        InstanceTokens(b"short")


def test_a_missing_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDLOT_NAMESPACE", "x")
    monkeypatch.setenv("SANDLOT_STARTS_PER_NODE", "0")
    with pytest.raises(BadSettings) as caught:
        load()
    assert "SANDLOT_KEY_FILE: Field required" in str(caught.value)
    assert "SANDLOT_STARTS_PER_NODE" in str(caught.value)
    assert "SANDLOT_NAMESPACE" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "verdict", "certain"),
    [
        (
            {"containerStatuses": [container("sandbox", waiting={"reason": "ErrImagePull"})]},
            "image_pull",
            True,
        ),
        (
            {"containerStatuses": [container("sidecar", waiting={"reason": "InvalidImageName"})]},
            "image_pull",
            True,
        ),
        (
            {"containerStatuses": [container("sandbox", waiting={"reason": "CreateContainerError"})]},
            "start_failed",
            True,
        ),
        (
            {
                "containerStatuses": [
                    container("sandbox", terminated={"reason": "StartError", "exitCode": 128})
                ]
            },
            "start_failed",
            True,
        ),
        ({"phase": "Failed", "reason": "OutOfpods"}, "start_failed", True),
        ({"phase": "Failed", "reason": "Evicted"}, "evicted", True),
        ({"phase": "Succeeded"}, "sandbox_lost", False),
        ({"containerStatuses": [container("sidecar", terminated={"exitCode": 0})]}, "sidecar_lost", False),
        ({"containerStatuses": [container("sidecar", terminated={"exitCode": 9})]}, "sidecar_lost", True),
        (
            {
                "containerStatuses": [
                    container("sidecar", terminated={"exitCode": 0}),
                    container("sandbox", terminated={"exitCode": 137, "reason": "OOMKilled"}),
                ]
            },
            "oom",
            True,
        ),
        (
            {
                "containerStatuses": [
                    container("sidecar", terminated={"exitCode": 128, "reason": "OOMKilled"}),
                    container("sandbox", terminated={"exitCode": 128, "reason": "Error"}),
                ]
            },
            "oom",
            True,
        ),
        (
            {
                "containerStatuses": [
                    container("sidecar", terminated={"exitCode": 128, "reason": "OOMKilled"}),
                    container("sandbox", running={}),
                ]
            },
            "sidecar_lost",
            False,
        ),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
                ]
            },
            "evicted",
            True,
        ),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
                ]
            },
            "node_lost",
            True,
        ),
    ],
)
def test_verdicts(said: dict[str, Any], verdict: str, certain: bool) -> None:
    found = verdicts.of_pod(pod(**said))
    assert found is not None
    assert (found.verdict, found.certain) == (verdict, certain)
    assert found.message


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"phase": "Running", "containerStatuses": [container("sandbox", running={})]},
        {"containerStatuses": [container("sandbox", waiting={"reason": "ContainerCreating"})]},
        {"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "EvictionByEvictionAPI"}]},
    ],
)
def test_a_living_pod_has_no_verdict(said: dict[str, Any]) -> None:
    assert verdicts.of_pod(pod(**said)) is None


def step(one: Sandbox, *, now: float = 100.0, **facts: Any) -> sandbox_plan.Step:
    return sandbox_plan.step(
        one, Facts(**{"pod": None, "first_seen": 0.0, **facts}), now=now, settings=SETTINGS
    )


def test_a_cold_one_gets_a_pod_once() -> None:
    assert step(sandbox()).action == Create()
    waiting = step(sandbox(), made_at=90.0)
    assert (waiting.action, waiting.again_at) == (None, 120.0)
    assert isinstance(step(sandbox(), made_at=60.0).action, End)
    assert isinstance(step(sandbox(), pod_was_here=True).action, End)
    assert isinstance(step(sandbox(sandboxId="sbx-1")).action, End)
    assert step(sandbox(madeFor="sb-1")).action == Create()
    assert isinstance(step(sandbox(madeFor="sb-1"), told_late=True).action, End)
    assert step(sandbox(), told_late=True).action == Create()
    assert isinstance(step(sandbox(said={"phase": "Running"})).action, End)


def test_one_that_waits_gets_no_pod_and_ends_with_its_gateway() -> None:
    promised = sandbox(sandboxId="sb-1", waitingUntil="2026-01-01T00:00:00Z")
    early = step(promised, waits_until=101.0)
    assert (early.action, early.again_at) == (None, 101.0)
    late = step(promised, waits_until=99.0).action
    assert isinstance(late, End)
    assert late.verdict.verdict == "start_failed"
    assert "gateway" in late.verdict.message
    told = status.ended(promised, late.verdict, pod=None, now=0.0)
    assert told is not None
    assert "podName" not in told["status"]
    assert step(promised, waits_until=99.0, has_instance=True).action == Drop()
    claimed = sandbox(sandboxId="sb-1", podName="i-9", waitingUntil="2026-01-01T00:00:00Z")
    assert step(claimed, first_seen=99.0, waits_until=0.0).action is None


def test_a_claim_waits_for_the_watch_to_show_its_pod() -> None:
    early = step(sandbox(podName="i-9"), first_seen=98.0)
    assert (early.action, early.again_at) == (None, 103.0)
    late = step(sandbox(podName="i-9"), first_seen=90.0).action
    assert late == End(verdicts.of_missing_pod())
    known = Verdict("oom", "x")
    assert step(sandbox(podName="i-9"), first_seen=99.0, lost=known).action == End(known)


def test_an_ended_one_is_left_alone() -> None:
    assert step(sandbox(said={"phase": "Ended"})).action is None


def test_an_uncertain_end_waits_for_the_gateway() -> None:
    over = pod(phase="Succeeded")
    assert step(sandbox(), pod=over).again_at == pytest.approx(110.0)
    assert isinstance(step(sandbox(), pod=over, odd_since=90.0).action, End)


def test_a_start_says_what_it_waits_for_and_is_given_up() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    waits = pod(node=None, conditions=[said])
    assert step(sandbox(), pod=waits, pod_seen=99.0).action is None
    assert step(sandbox(), pod=waits, pod_seen=90.0).action == Tell("0/2 nodes")
    given_up = step(sandbox(), pod=waits, pod_seen=-300.0).action
    assert isinstance(given_up, End)
    assert given_up.verdict.verdict == "start_failed"
    assert "0/2 nodes" in given_up.verdict.message


def test_running_is_told_a_little_later() -> None:
    up = pod(phase="Running")
    assert step(sandbox(), pod=up, ready_since=99.5).again_at == pytest.approx(100.5)
    assert step(sandbox(), pod=up, ready_since=90.0).action == Run()


def test_what_the_gateway_has_said_is_not_told_again() -> None:
    up = pod(phase="Running")
    owned: dict[str, Any] = {"sandboxId": "sb-1", "state": "Running"}
    assert step(sandbox(said={}, **owned), pod=up, ready_since=90.0) == sandbox_plan.Step()
    started: dict[str, Any] = {"madeFor": "sb-1", "state": "Started"}
    assert step(sandbox(said={}, **started), pod=up, ready_since=90.0) == sandbox_plan.Step()
    waited = status.pending(sandbox(), message="0/2 nodes", now=0.0)
    assert waited is not None
    assert step(sandbox(said=waited["status"], **owned), pod=up, ready_since=90.0).action == Run()


def test_a_silent_node_has_its_grace() -> None:
    up = pod(phase="Running")
    assert step(sandbox(), pod=up, ready_since=0.0, silent_since=80.0).again_at == pytest.approx(110.0)
    lost = step(sandbox(), pod=up, ready_since=0.0, silent_since=70.0).action
    assert isinstance(lost, End)
    assert lost.verdict.verdict == "node_lost"


def test_a_status_is_written_once() -> None:
    one, up = sandbox(), pod(phase="Running", podIP="10.0.0.1")
    patch = status.running(one, up, now=0.0)
    assert patch is not None
    told = sandbox(said=patch["status"])
    assert status.running(told, up, now=50.0) is None
    over = status.ended(told, Verdict("oom", "too much", 137), pod=up, now=60.0)
    assert over is not None
    assert over["status"]["endedAt"] == "1970-01-01T00:01:00Z"
    (condition,) = over["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Ended", "oom")
    done = sandbox(said={**patch["status"], **over["status"]})
    assert status.ended(done, Verdict("deleted", ""), pod=None, now=70.0) is None


def test_a_condition_keeps_its_time_while_its_status_does() -> None:
    body = {"metadata": {"name": "p", "generation": 1}, "spec": {"template": {"image": "x"}, "size": 2}}
    pool = msgspec.convert(body, SandboxPool)
    first = status.pool(pool, PoolCounts(size=2, starting=2), now=0.0)
    assert first is not None
    assert status.urgent(pool, first)
    pool = msgspec.convert({**body, "status": first["status"]}, SandboxPool)
    assert status.pool(pool, PoolCounts(size=2, starting=2), now=9.0) is None
    counts = status.pool(pool, PoolCounts(size=2, starting=1, ready=1), now=9.0)
    assert counts == {"status": {"ready": 1, "starting": 1}}
    assert not status.urgent(pool, counts)
    full = status.pool(pool, PoolCounts(size=2, ready=2), now=9.0)
    assert full is not None
    assert status.urgent(pool, full)
    filled = msgspec.convert({**body, "status": {**first["status"], **full["status"]}}, SandboxPool)
    claimed = status.pool(filled, PoolCounts(size=2, ready=1, claimed=1), now=9.0)
    assert claimed is not None
    assert not status.urgent(filled, claimed)
    failing = status.pool(pool, PoolCounts(size=2, failures=1, message="x"), now=9.0)
    assert failing is not None
    assert status.urgent(pool, failing)
    assert failing["status"]["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"


def test_a_pool_grows_with_claims_and_shrinks_when_they_stop() -> None:
    demand = Demand()
    demand.started(seconds=4.0)
    assert demand.size(least=1, most=50, now=0.0) == 1
    for number in range(100):
        demand.claimed(now=number / 10)  # ten a second
    grown = demand.size(least=1, most=200, now=10.0)
    assert 55 <= grown <= 61
    assert demand.size(least=1, most=50, now=10.0) == 50
    assert demand.size(least=1, most=200, now=60.0) == grown
    assert demand.size(least=1, most=200, now=200.0) < grown
    assert demand.size(least=1, most=200, now=500.0) == 1


@given(
    claims=st.lists(st.floats(0, 300), max_size=60),
    least=st.integers(0, 20),
    more=st.integers(0, 50),
    seconds=st.floats(0, 1000),
)
def test_a_size_is_within_its_bounds(claims: list[float], least: int, more: int, seconds: float) -> None:
    demand = Demand()
    demand.started(seconds=seconds)
    for now in sorted(claims):
        demand.claimed(now=now)
        assert least <= demand.size(least=least, most=least + more, now=now) <= least + more


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20)), max_size=30), st.integers(0, 20))
def test_a_name_is_due_once_at_its_earliest(sets: list[tuple[str, int]], now: int) -> None:
    timers = Timers()
    for name, at in sets:
        timers.set(name, at)
    earliest = {name: min(at for other, at in sets if other == name) for name, _ in sets}
    due = timers.pop_due(now)
    assert sorted(due) == sorted(name for name, at in earliest.items() if at <= now)
    assert timers.next_at() == min((at for at in earliest.values() if at > now), default=None)


def node(*, ready: str = "True", **spec: Any) -> Node:
    body = {
        "metadata": {"name": "n", "labels": {"gpu": "yes"}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(body, Node)


@pytest.mark.parametrize(
    ("one", "selector", "tolerations", "usable"),
    [
        (node(), {}, [], True),
        (node(), {"gpu": "yes"}, [], True),
        (node(), {"gpu": "no"}, [], False),
        (node(ready="False"), {}, [], False),
        (node(unschedulable=True), {}, [], False),
        (node(taints=[{"key": "a", "effect": "NoSchedule"}]), {}, [], False),
        (node(taints=[{"key": "a", "effect": "PreferNoSchedule"}]), {}, [], True),
        (node(taints=[{"key": "a", "effect": "NoSchedule"}]), {}, [Toleration(operator="Exists")], True),
        (
            node(taints=[{"key": "a", "value": "1", "effect": "NoSchedule"}]),
            {},
            [Toleration(key="a", value="1")],
            True,
        ),
        (
            node(taints=[{"key": "a", "value": "1", "effect": "NoSchedule"}]),
            {},
            [Toleration(key="a", value="2")],
            False,
        ),
        (
            node(taints=[{"key": "a", "effect": "NoExecute"}]),
            {},
            [Toleration(key="a", operator="Exists", effect="NoSchedule")],
            False,
        ),
    ],
)
def test_usable_nodes(
    one: Node, selector: dict[str, str], tolerations: list[Toleration], usable: bool
) -> None:
    assert is_usable(one, selector=selector, tolerations=tolerations) is usable


def test_silent_nodes() -> None:
    assert is_silent(None)
    assert is_silent(node(ready="Unknown"))
    assert not is_silent(node(ready="False"))


def test_times() -> None:
    assert clock.text(0.0) == "1970-01-01T00:00:00Z"
    assert clock.seconds("1970-01-01T00:01:00Z") == 60.0
    assert clock.seconds("1970-01-01T00:01:00.5+00:00") == 60.5
    assert clock.seconds("soon") is None
