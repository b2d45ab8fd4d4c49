"""A real Prometheus scrapes an installed release: a healthy one is quiet, and each alert fires under a real fault."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.chart.boards import BOARDS
from tests.cluster import cluster
from tests.cluster.config import REGISTRY_HOST
from tests.cluster.paths import IMAGES
from tests.kubernetes import alert_faults as faults
from tests.kubernetes.alert_load import COLD, FORGE, MISSING, POOLED, Callers, callers
from tests.kubernetes.boxes import filled, pods_exec, until
from tests.kubernetes.killing import held_lease, kill, metric, own_cluster_only, running_requests
from tests.kubernetes.node_agents import Agent, leave_no_image
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, POOL, Stack
from tests.kubernetes.watched import Watched, Watcher, watched
from tests.waiting import wait_until, wait_until_empty

pytestmark = [
    pytest.mark.whole_cluster,
    pytest.mark.skipif(not os.environ.get("SANDLOT_TEST_ALERTS"), reason="`make test-alerts` runs it"),
]
# The panel that a healthy release leaves empty.
FAILED_WRITES = "controller: Failed writes"
AUDIT = "/var/lib/sandlot/audit.log"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    own_cluster_only()
    with release_of_its_own("live", runtime="runc") as made:
        values = {
            "nodeAgent": {
                "enabled": True,
                "config": {"minFree": 0, "budget": 220 << 20, "useGrace": 1, "housekeeping": 1},
            },
            "gateway.config": {
                "registries": [REGISTRY_HOST, faults.DEAD_REGISTRY, "sandlot.test"],
                "leave": 0,
                "drain": 0,
                "maxRunning": 2,
                "maxQueued": 1,
            },
        }
        more = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        made.install("--set-json", more)
        try:
            # The chart writes records to stdout, which cannot be full.
            deployment = (f"deployment/{made.release}-gateway", "-n", made.namespace)
            made.kubectl("set", "env", *deployment, f"SANDLOT_AUDIT_LOG={AUDIT}")
            made.kubectl("rollout", "status", *deployment, "--timeout=240s")
            yield made
        finally:
            leave_no_image(made)


@pytest.fixture(scope="module")
def live(stack: Stack) -> Iterator[Watched]:
    with watched(stack) as made:
        yield made


@pytest.fixture(scope="module")
def watcher(live: Watched) -> Iterator[Watcher]:
    with live.prometheus("faults") as made:
        yield made


@pytest.fixture
def server(live: Watched, watcher: Watcher) -> Iterator[Watcher]:
    """The one that watches all faults, of which one begins after another has healed and the pool is full."""
    filled(live.stack, size=POOL)
    watcher.begin()
    yield watcher
    watcher.heals()


@pytest.fixture
def fresh(live: Watched) -> Iterator[Watcher]:
    """One that has never seen a fault."""
    filled(live.stack, size=POOL)
    with live.prometheus("health") as made:
        yield made


def test_a_healthy_release_under_load_is_quiet_and_its_boards_show_data(
    live: Watched, fresh: Watcher
) -> None:
    image = cluster.push_image(IMAGES / "archives" / "python.tar")
    for node in faults.workers(live.stack):
        Agent(live.stack, node).prepare(image)
    for _ in range(2):
        for gateway in faults.pods(live.stack, "gateway"):
            filled(live.stack, size=POOL)
            with callers(live.stack, gateway) as ours:
                ours.work()
            fresh.scraped()
    queries = panels(live.stack)
    assert queries.pop(FAILED_WRITES)
    missing = lambda: {panel for panel, asked in queries.items() if not all(map(fresh.shows, asked))}  # noqa: E731
    wait_until_empty(missing, pause=0.5, seconds=30)
    fresh.stays_quiet()


def panels(stack: Stack) -> dict[str, list[str]]:
    """The queries of each panel of each board, of the release alone."""
    spaces = f"{stack.namespace}|{stack.sandboxes}"
    return {
        f"{name}: {panel['title']}": [
            target["expr"].replace("$namespace", spaces) for target in panel["targets"]
        ]
        for name, board in BOARDS.items()
        for panel in board["panels"]
    }


def test_sandboxes_that_cannot_be_reached(live: Watched, server: Watcher) -> None:
    """The first fault: several others leave connections that fail."""
    with callers(live.stack) as ours, ExitStack() as ends, ThreadPoolExecutor(6) as threads:
        boxes = [ours.begin(**POOLED) for _ in range(3)]
        for box in boxes:
            ends.callback(ours.end, box)
        with faults.no_way_in(live.stack):

            def fires() -> bool:
                list(threads.map(ours.attempt, boxes * 2))
                server.scraped()
                return "SandlotCannotReachSandboxes" in server.fired()

            until(fires)
            # New pods of the pool are of no use either.
            server.fires("SandlotCannotReachSandboxes", may=("SandlotPoolEmpty default",))
        for box in boxes:
            assert ours.execute(box, "true") == 200


def test_pools_that_cannot_start(live: Watched, server: Watcher) -> None:
    huge = faults.pool(live.stack, "huge", {"image": IMAGE, "cpu": 900})
    with huge, faults.pool(live.stack, "broken", {"image": MISSING}):
        server.fires("SandlotPoolEmpty huge", "SandlotPoolDoesNotStart broken", "SandlotPoolEmpty broken")


def test_node_agents_that_cannot_prepare(live: Watched, server: Watcher) -> None:
    node = faults.workers(live.stack)[0]
    agent = Agent(live.stack, node)
    big = cluster.push_image(IMAGES / "archives" / "gateway.tar")
    assert failure(agent, big) == "no_space"
    with faults.dead_registry(node) as image:
        assert failure(agent, image) == "unavailable"
        server.fires(f"SandlotNodeOutOfSpace {agent.pod()['metadata']['name']}", "SandlotImagesFail")


def failure(agent: Agent, image: str) -> str:
    """Why the node cannot prepare the image."""

    def told() -> str | None:
        return agent.call("POST", "/v1/images?wait=30", {"image": image})[1].get("code")

    return str(until(told))


def test_files_and_descriptors_of_gateways(live: Watched, server: Watcher) -> None:
    one, other = faults.pods(live.stack, "gateway")
    with faults.no_room_for_records(live.stack, one, AUDIT), faults.few_descriptors(live.stack, other):
        with callers(live.stack, one) as ours:
            ours.client.get("/api/v1/sandbox").raise_for_status()
        with faults.bad_api_keys(live.stack):
            server.fires(
                f"SandlotAuditLogFails {one['metadata']['name']}",
                f"SandlotDescriptorsRunOut {other['metadata']['name']}",
                *(f"SandlotReloadFails {each['metadata']['name']} api_keys" for each in (one, other)),
            )


def test_requests_and_creates_that_are_refused_or_fail(live: Watched, server: Watcher) -> None:
    gateway = faults.pods(live.stack, "gateway")[0]
    with callers(live.stack, gateway) as ours:
        with ExitStack() as ends:
            box = ours.begin(**POOLED)
            ends.callback(ours.end, box)
            for _ in range(3):
                ours.too_much(box)
                server.scraped()
            server.fires("SandlotTurnsAway")
        for _ in range(4):
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda _: ours.create(MISSING, **COLD).raise_for_status(), range(4)))
            server.scraped()
        # Pods that have not begun are called in vain when their creates end.
        server.fires("SandlotCreatesFail", may=("SandlotCannotReachSandboxes",))


def test_forged_webhooks(live: Watched, server: Watcher) -> None:
    gateway = faults.pods(live.stack, "gateway")[0]
    pod = faults.names(faults.warm_pods(live.stack))[0]
    pods_exec(live.stack, pod, ["python3", "-c", FORGE, gateway["status"]["podIP"], pod])
    server.fires("SandlotWebhooksUnsigned")


def test_sandboxes_that_are_lost_while_they_run_commands(live: Watched, server: Watcher) -> None:
    for _ in range(2):
        filled(live.stack, size=POOL)
        with callers(live.stack) as ours, ThreadPoolExecutor(6) as threads:
            lose_sandboxes(live.stack, ours, threads)
        server.scraped()
    may = ("SandlotPoolEmpty default", "SandlotCannotReachSandboxes")
    server.fires("SandlotLosesSandboxes", "SandlotRequestsFail", may=may)


def lose_sandboxes(stack: Stack, ours: Callers, threads: ThreadPoolExecutor) -> None:
    """Kill the sidecars of three, each with two commands; none ends well."""
    boxes = [ours.begin(**POOLED) for _ in range(3)]
    codes = [threads.submit(ours.execute, box, "sleep 40", timeout=50) for box in boxes * 2]

    def all_run() -> bool:
        gateways = faults.pods(stack, "gateway")
        return sum(running_requests(stack, gateway) for gateway in gateways) == len(codes)

    wait_until(all_run, what="all commands run")
    before = lost_sandboxes(stack)
    for pod in faults.names(faults.warm_pods(stack)):
        kill(stack.sandboxes, pod, "sidecar")
    assert 200 not in {code.result() for code in codes}
    # Each gateway counts an end when it hears of it: a count of both rounds in one scrape would be no rate.
    wait_until(
        lambda: all(now >= was + len(boxes) for was, now in zip(before, lost_sandboxes(stack), strict=True)),
        what="all losses are counted",
    )


def lost_sandboxes(stack: Stack) -> list[float]:
    """How many losses of sidecars each gateway has counted."""
    name = 'sandlot_sandbox_ends_total{verdict="sidecar_lost"}'
    return [metric(stack, gateway, name) for gateway in faults.pods(stack, "gateway")]


def test_writes_that_the_api_server_rejects(live: Watched, server: Watcher) -> None:
    with faults.no_more_pods(live.stack), callers(live.stack) as ours, ThreadPoolExecutor(10) as threads:
        made: list[str] = []
        try:
            for _ in range(4):
                for answer in threads.map(lambda _: ours.create(**{**COLD, "wait_seconds": 0}), range(10)):
                    print(answer.status_code, answer.text[:300])
                    if answer.status_code == 201:
                        made.append(answer.json()["id"])
                server.scraped()
            server.fires("SandlotWritesFail Forbidden", may=("SandlotCreatesFail",))
            assert all(map(server.shows, panels(live.stack)[FAILED_WRITES]))
        finally:
            list(threads.map(ours.end, made))


def test_pods_that_hang(live: Watched, server: Watcher) -> None:
    gateway, agent = faults.pods(live.stack, "gateway")[0], faults.pods(live.stack, "node-agent")[0]
    with faults.stopped(gateway), faults.stopped(agent):
        server.fires(
            f"SandlotDoesNotAnswer {gateway['metadata']['name']}",
            f"SandlotNodeAgentDoesNotAnswer {agent['metadata']['name']}",
        )


def test_a_controller_that_is_killed_again_and_again(live: Watched, server: Watcher) -> None:
    lease = held_lease(live.stack)
    assert lease is not None
    standby = next(name for name in faults.names(faults.pods(live.stack, "controller")) if name != lease.pod)
    for _ in range(3):
        faults.restart(live.stack, standby)
        server.scraped()
    # Between its restarts a kubelet waits longer than the shortened alert does.
    server.fires(f"SandlotRestarts {standby}", may=(f"SandlotDoesNotAnswer {standby}",))


def test_nothing_runs(live: Watched, server: Watcher) -> None:
    gateways, controllers = (faults.none_of(live.stack, component) for component in ("gateway", "controller"))
    with gateways, controllers, faults.no_node_agent(live.stack):
        server.fires("SandlotNoGateway", "SandlotNoController", "SandlotNoNodeAgent")


def test_a_controller_without_a_right(live: Watched, server: Watcher) -> None:
    with faults.without_right(live.stack, "sandboxpools"):
        server.fires("SandlotControllerCannotRead sandboxpools", "SandlotNoController")
