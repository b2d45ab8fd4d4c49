"""Where an instance is: by its sidecar's word, else by its pod's status, else by its name in DNS."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.deaths import death_of, is_over
from sandlot_gateway.backends.kubernetes.instances import Instances
from sandlot_gateway.tokens import Tokens
from sandlot_kube.objects import (
    ContainerState,
    ContainerStatus,
    Metadata,
    Pod,
    PodSpec,
    PodStatus,
    Terminated,
)

ID = "i-0123456789abcdef"
TEMPLATE = Template("python:3.12", memory=256 << 20)


def instances() -> Instances:
    return Instances(tokens=Tokens(b"k" * 32), domain="sandboxes.boxes.svc.cluster.local")


def pod(
    *, ip: str | None = None, template: str = '{"image": "python:3.12", "memory": 268435456}', **labels: str
) -> Pod:
    metadata = Metadata(name=ID, labels=labels, annotations={"sandlot.dev/template": template})
    return Pod(metadata=metadata, status=PodStatus(pod_ip=ip))


def state(**fields: Any) -> dict[str, Any]:
    return {"instance_id": ID, "phase": "warm", "generation": 1, **fields}


def test_dns_until_something_better_is_known_and_the_webhook_over_the_watch() -> None:
    known = instances()
    instance = known.add(ID, TEMPLATE, cold=True).instance
    # The dot at the end: looked up as it stands.
    assert instance.address == f"{ID}.sandboxes.boxes.svc.cluster.local.:8700"
    known.from_pod(pod())
    assert instance.address.endswith(".:8700")
    known.from_pod(pod(ip="10.0.0.7"))
    assert instance.address == "10.0.0.7:8700"
    known.from_state(ID, state(address="10.0.0.8:8701"), template=None)
    assert instance.address == "10.0.0.8:8701"
    known.from_pod(pod(ip="10.0.0.7"))
    assert instance.address == "10.0.0.8:8701"


@pytest.mark.parametrize("address", ["0.0.0.0:8700", "[::]:8700", "unix:/run/x", "", None, 7, "10.0.0.1"])
def test_a_sidecar_that_does_not_know_its_address_is_found_otherwise(address: Any) -> None:
    known = instances()
    entry = known.from_state(ID, state(address=address), template=TEMPLATE)
    assert entry is not None
    assert entry.instance.address == f"{ID}.sandboxes.boxes.svc.cluster.local.:8700"


def test_an_ipv6_pod_has_brackets() -> None:
    entry = instances().from_pod(pod(ip="fd00::7"))
    assert entry is not None
    assert entry.instance.address == "[fd00::7]:8700"


def test_a_pod_tells_template_pool_and_whether_it_was_made_for_a_sandbox() -> None:
    known = instances()
    warm = known.from_pod(pod(**{"sandlot.dev/pool": "default"}))
    assert warm is not None
    assert (warm.instance.template, warm.instance.pool, warm.cold) == (TEMPLATE, "default", False)
    assert warm.instance.token == Tokens(b"k" * 32).instance(ID)
    cold = known.from_pod(pod(**{"sandlot.dev/for": ID}))
    assert cold is warm
    assert cold.cold is True


def test_a_start_begins_when_its_pod_has_a_node() -> None:
    known = instances()
    entry = known.add(ID, TEMPLATE, cold=True)
    known.from_pod(pod())
    assert entry.placed_at is None
    bound = msgspec.structs.replace(pod(), spec=PodSpec(node_name="node-1"))
    known.from_pod(bound)
    placed_at = entry.placed_at
    assert placed_at is not None
    assert entry.node == "node-1"
    known.from_pod(bound)
    assert entry.placed_at == placed_at


@pytest.mark.parametrize("template", ["", "{", '{"cpu": 1}'])
def test_a_pod_without_a_template_is_nobodys(template: str, caplog: pytest.LogCaptureFixture) -> None:
    assert instances().from_pod(pod(template=template)) is None
    assert ID in caplog.text


def test_a_state_without_a_known_template_has_to_be_told_again() -> None:
    assert instances().from_state(ID, state(template="unknown"), template=None) is None


def test_a_claims_own_meta_tells_the_template() -> None:
    """After a restart without an API server there is nothing else."""
    spec = {"name": "n", "image": "python:3.12", "memory_gb": 0.25}
    meta = {"spec": spec, "created_at": 1.0, "tenant": "alpha"}
    entry = instances().from_state(ID, state(sandbox_id="sb-0", meta=meta), template=None)
    assert entry is not None
    assert entry.instance.template == TEMPLATE


def test_what_is_gone_stays_gone() -> None:
    known = instances()
    known.add(ID, TEMPLATE)
    known.remove(ID)
    assert known.is_gone(ID)
    assert known.from_pod(pod(ip="10.0.0.7")) is None
    assert len(known) == 0


def _ended(**terminated: Any) -> list[ContainerStatus]:
    return [ContainerStatus(name="sandbox", state=ContainerState(terminated=Terminated(**terminated)))]


def test_when_a_pod_is_over() -> None:
    live = pod(ip="10.0.0.7")
    assert not is_over(live)
    leaving = pod()
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert is_over(leaving)
    for status in (
        PodStatus(phase="Failed"),
        PodStatus(phase="Succeeded"),
        PodStatus(container_statuses=_ended()),
    ):
        assert is_over(Pod(metadata=Metadata(name=ID), status=status))


@pytest.mark.parametrize(
    ("status", "started", "verdict", "says"),
    [
        (
            PodStatus(phase="Failed", reason="Evicted", message="low on memory"),
            True,
            "evicted",
            "low on memory",
        ),
        (
            PodStatus(phase="Failed", container_statuses=_ended(exit_code=3, reason="Error")),
            True,
            "sandbox_lost",
            "3",
        ),
        (
            PodStatus(container_statuses=_ended(exit_code=137, reason="OOMKilled")),
            True,
            "oom",
            "memory limit",
        ),
        (PodStatus(phase="Pending"), False, "evicted", "deleted"),
        (None, True, "sandbox_lost", "gone"),
    ],
)
def test_a_death_nobody_explains(status: PodStatus | None, started: bool, verdict: str, says: str) -> None:
    dead = None if status is None else Pod(metadata=Metadata(name=ID), status=status)
    found, message = death_of(dead, started=started)
    assert found == verdict
    assert says in message
