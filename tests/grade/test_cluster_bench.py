"""The benchmark on a cluster, without one: its bounds, its rows, and how it reads histograms and the audit log."""

from __future__ import annotations

import json
import math

import pytest
from sandlot_controller import metrics as controller
from sandlot_node import metrics as node
from sandlot_node.images import ImageId
from sandlot_node.ledger import Ledger

from loadtests.bench_cluster import SPEC, groups
from loadtests.bounds import read_bounds
from loadtests.cluster import lazy_rows, slot_file_rows, slot_rows
from loadtests.cluster.agents import made
from loadtests.cluster.churn_rows import Churn
from loadtests.cluster.rate_rows import CALLERS
from loadtests.cluster.ray_rows import compared
from loadtests.cluster.site import RUNTIMES, Installation
from loadtests.cluster.start_rows import quantile
from loadtests.cluster.writes_rows import counted
from loadtests.local.file_rows import rows
from loadtests.ray_sandboxes.peer import Rollouts

AT_MOST = {
    "exec_runc": 2.5,
    "exec_gvisor": 1.4,
    "create_runc": 15,
    "create_gvisor": 30,
    "back_to_back_runc": 2,
    "back_to_back_gvisor": 2,
    "burst_runc": 100,
    "burst_gvisor": 100,
    "claimable_runc": 20,
    "claimable_gvisor": 20,
    "writes_warm": 4,
    "writes_cold": 4,
    "writes_reused": 0,
    "starts_simulated": 1,
    **{f"create_other_image_{runtime}": 1.3 for runtime in RUNTIMES},
    **{f"images_pods_created_{runtime}": 0 for runtime in RUNTIMES},
    **{f"{row}_{runtime}": 1.3 for row in slot_file_rows.ROWS for runtime in RUNTIMES},
    **dict.fromkeys(lazy_rows.ROWS, 0.3),
    **{row: 1.5 for runtime in RUNTIMES for row in rows(runtime)},
}
AT_LEAST = {
    "churn_over_replace_runc": 30,
    "churn_over_replace_gvisor": 10,
    "churn_over_spawns_gvisor": 0.15,
    "pods_exec_runc": 20,
    "pods_exec_rate_runc": 25,
    "cold_burst_runc": 64,
    "images_local": 0.98,
    "cold_burst_gvisor": 64,
    "churn_over_ray_gvisor": 3,
    **{f"rate_{callers}_{runtime}": 0.85 for callers in CALLERS for runtime in RUNTIMES},
}


def test_the_bounds_are_those_that_were_promised() -> None:
    bounds = read_bounds(SPEC)
    assert {name: bounds[name].at_most for name in AT_MOST} == AT_MOST
    assert {name: bounds[name].at_least for name in AT_LEAST} == AT_LEAST


def test_each_row_is_measured_by_one_group() -> None:
    made = groups(Installation(), own_cluster=False, ray=True)
    assert sorted(row for group in made for row in group.rows) == sorted(read_bounds(SPEC))


def test_on_a_cluster_of_ones_own_no_audit_log_is_read_and_nothing_is_pushed() -> None:
    rows = {row for group in groups(Installation(), own_cluster=True, ray=True) for row in group.rows}
    assert set(read_bounds(SPEC)) - rows == {
        *("writes_warm", "writes_cold", "writes_reused"),
        *(f"{row}_{runtime}" for runtime in RUNTIMES for row in (*slot_rows.ROWS, *slot_file_rows.ROWS)),
        "churn_over_ray_gvisor",
        *lazy_rows.ROWS,
    }


def test_without_ray_only_its_row_is_left_out() -> None:
    rows = {row for group in groups(Installation(), own_cluster=False, ray=False) for row in group.rows}
    assert set(read_bounds(SPEC)) - rows == {"churn_over_ray_gvisor"}


def test_ray_s_faster_way_is_what_slots_are_compared_with() -> None:
    slow, fast = [(1.0, 0.2, 0.1)] * 4, [(0.3, 0.02, 0.03)] * 20
    theirs = [{"runtime": Rollouts(10.0, fast), "actor": Rollouts(10.0, slow)}] * 2
    found = compared([Churn(10.0, [0.1] * 80), Churn(10.0, [0.1] * 40, pods=1)], theirs)
    assert found.value == pytest.approx(3)
    assert found.parts["rollouts/s"] == "6.0"
    assert found.parts["rollouts/s, Ray, runtime"] == "2.0"
    assert found.parts["rollouts/s, Ray, actor"] == "0.4"
    assert found.parts["create p50, Ray"] == "300 ms"
    assert found.parts["pods created"] == "1"


def test_every_bound_has_a_comment_with_what_was_measured() -> None:
    text = "\n" + SPEC.read_text()
    for name in read_bounds(SPEC):
        row = text.partition(f"\n{name}:")[2].partition("\n\n")[0]
        assert "# measured" in row, name


def test_a_quantile_lies_evenly_within_its_bucket() -> None:
    counts = {0.01: 0.0, 0.02: 8.0, 0.05: 10.0, math.inf: 10.0}
    assert quantile(counts, 0.4) == pytest.approx(0.015)
    assert quantile(counts, 0.9) == pytest.approx(0.035)
    assert quantile({0.01: 1.0, math.inf: 4.0}, 0.9) == 0.01
    with pytest.raises(RuntimeError, match="counted a start"):
        quantile({0.01: 0.0, math.inf: 0.0}, 0.5)


def test_what_agents_and_controllers_made_is_read_from_their_metrics() -> None:
    agents, leader = [node.Metrics(), node.Metrics()], controller.Metrics()
    agent_texts: list[str] = []
    for number, agent in enumerate(agents):
        agent.preparations.labels("ok").inc(2 + number)
        agent.preparations.labels("no_space").inc(9)
        agent.pulled_bytes.inc(3 << 30)
        ledger = Ledger(budget=1 << 40, hold=0.0)
        ledger.add(ImageId(f"sha256:{number}"), {"layer": 1000 + number}, name="an-image", now=0.0)
        agent_texts.append(agent.text(ledger).decode())
    leader.pods_created.labels("pool").inc(12)
    leader.pods_created.labels("cold").inc(3)
    other = controller.Metrics()
    found = made(agents=agent_texts, controllers=[leader.text().decode(), other.text().decode()])
    assert found == {"images_prepared": 5, "bytes_pulled": 6 << 30, "image_bytes": 2001, "pods": 15}


def test_only_our_own_writes_are_counted() -> None:
    def event(user: str, verb: str, resource: str, subresource: str | None = None, name: str = "sb-1") -> str:
        target = {"resource": resource, "subresource": subresource, "name": name}
        return json.dumps({"user": {"username": user}, "verb": verb, "objectRef": target})

    ours = "system:serviceaccount:f-test:f-sandlot"
    lines = [
        event(f"{ours}-gateway", "create", "sandboxes"),
        event(f"{ours}-controller", "patch", "sandboxes", "status"),
        event(f"{ours}-controller", "patch", "sandboxes", "status"),
        event(f"{ours}-controller", "create", "pods", name="i-1"),
        event(f"{ours}-controller", "update", "leases"),
        event(f"{ours}-controller", "watch", "pods"),
        event("system:serviceaccount:other-test:f-sandlot-gateway", "create", "sandboxes"),
        event("system:node:worker", "patch", "pods", "status"),
        event("system:kube-scheduler", "create", "pods", "binding"),
    ]
    warm, cold = counted("\n".join(lines), namespace="f-test", cold={"i-1"})
    assert warm == {
        "gateway create sandboxes": 1,
        "controller patch sandboxes/status": 2,
        "controller update leases": 1,
    }
    assert cold == {"controller create pods": 1}
