"""Where an instance is: by its sidecar's word, else by its pod's status, else by its name in DNS."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from sandlot_gateway.backends.kubernetes.instances import Instances, Origin, SeenPod
from sandlot_gateway.backends.kubernetes.pods import Pods, death_of, is_over
from sandlot_gateway.core.instances import Laid, Template
from sandlot_gateway.core.slot import Phase
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


def test_a_pod_s_annotation_says_whether_its_sidecar_speaks_tls() -> None:
    known = Instances(tokens=Tokens(b"k" * 32), domain="boxes", encrypted=True)
    instance = known.add(ID, TEMPLATE).instance
    assert instance.address == f"tls:{ID}.boxes.:8700"
    known.from_pod(pod(ip="10.0.0.7"))
    assert instance.address == "10.0.0.7:8700"  # one of before TLS was switched on
    marked = pod(ip="fd00::7")
    marked.metadata.annotations["sandlot.dev/sidecar-tls"] = "true"
    known.from_pod(marked)
    assert instance.address == "tls:[fd00::7]:8700"
    known.from_state(ID, state(address="tls:10.0.0.8:8700"), template=None)
    assert instance.address == "tls:10.0.0.8:8700"
    known.from_state(ID, state(address="tls:0.0.0.0:8700"), template=None)
    assert instance.address == "tls:10.0.0.8:8700"


def test_dns_until_something_better_is_known_and_the_webhook_over_the_watch() -> None:
    known = instances()
    instance = known.add(ID, TEMPLATE, origin=Origin.OWN_START).instance
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
    assert (warm.instance.template, warm.instance.pool, warm.origin) == (TEMPLATE, "default", Origin.POOL)
    assert warm.instance.token == Tokens(b"k" * 32).instance(ID)
    cold = known.from_pod(pod(**{"sandlot.dev/for": ID}))
    assert cold is not None
    assert (cold.instance, cold.origin) == (warm.instance, Origin.OTHERS_START)


def test_what_this_gateway_has_started_stays_its_own() -> None:
    known = instances()
    assert known.add(ID, TEMPLATE, origin=Origin.OWN_START).origin.cold is True
    own = known.from_pod(pod(**{"sandlot.dev/for": ID}))
    assert own is not None
    assert own.origin is Origin.OWN_START


def test_a_start_begins_when_its_pod_has_a_node() -> None:
    known = instances()
    known.add(ID, TEMPLATE, origin=Origin.OWN_START)
    assert known.from_pod(pod()).pod == SeenPod(node=None, placed_at=None)
    bound = msgspec.structs.replace(pod(), spec=PodSpec(node_name="node-1"))
    placed = known.from_pod(bound).pod
    assert placed.placed_at is not None
    assert placed.node == "node-1"
    assert known.from_pod(bound).pod == placed


@pytest.mark.parametrize("template", ["", "{", '{"cpu": "one"}', '{"image": 1}'])
def test_a_pod_without_a_template_is_nobodys(template: str, caplog: pytest.LogCaptureFixture) -> None:
    assert instances().from_pod(pod(template=template)) is None
    assert ID in caplog.text


def test_the_template_of_a_slot_pod_names_no_image() -> None:
    seen = instances().from_pod(pod(template='{"cpu": 1}'))
    assert seen is not None
    assert (seen.instance.template.image, seen.instance.template.cpu) == ("", 1.0)


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
    assert known.take_address(ID) == f"{ID}.sandboxes.boxes.svc.cluster.local.:8700"
    assert known.take_address(ID) == "", "another pod may have it by now"
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
    loss = death_of(dead, started=started)
    assert loss.verdict == verdict
    assert loss.message is not None
    assert says in loss.message


def test_a_pod_that_was_reset_is_reused_before_the_watch_shows_it() -> None:
    """Else the record of its earlier sandbox would be taken for that of the next."""
    known = instances()
    first = known.from_state(ID, state(), template=TEMPLATE)
    assert first is not None
    assert not first.reused
    second = known.from_state(ID, state(generation=2), template=TEMPLATE)
    assert second is not None
    assert second.reused


LAID = [f"sha256:{number:064x}" for number in range(2)]


def laying(*, claimed: bool = False) -> Instances:
    return Instances(
        tokens=Tokens(b"k" * 32),
        domain="d",
        image_name={LAID[0]: "one:1"}.get,
        claimed_here=lambda instance_id: claimed,
    )


@pytest.mark.parametrize(
    "image", ["../../x", "sha256:abc", f"{LAID[0]}\n", f"{LAID[0]}/uses/other", 7, ["x"]]
)
def test_a_sidecar_that_was_taken_over_names_no_path(image: Any) -> None:
    known = laying()
    seen = known.from_state(ID, state(image=LAID[0]), template=TEMPLATE)
    assert seen is not None
    assert seen.instance.laid == Laid(LAID[0], "one:1")
    known.from_state(ID, state(generation=2, image=image), template=TEMPLATE)
    assert seen.instance.laid == Laid(LAID[0], "one:1")


def test_a_late_report_does_not_change_the_image_of_a_claim_of_this_gateway() -> None:
    known = laying(claimed=True)
    seen = known.from_state(ID, state(image=None), template=TEMPLATE)
    assert seen is not None
    seen.instance.laid = Laid(LAID[0], "one:1")
    known.from_state(ID, state(image=None), template=TEMPLATE)
    assert seen.instance.laid == Laid(LAID[0], "one:1")
    known.from_state(ID, state(generation=2, image=LAID[1]), template=TEMPLATE)
    assert seen.instance.laid == Laid(LAID[1])


def test_a_slot_that_reported_before_its_pod_was_seen_is_asked_again() -> None:
    """The ledger has it as one that keeps its image."""
    known = laying()
    asked: list[str] = []
    states = SimpleNamespace(expect=lambda seen, reachable: None, ask=lambda one: asked.append(one.id))
    pods = Pods(
        known,
        recorded=cast("Any", None),
        states=cast("Any", states),
        pool=cast("Any", None),
        reporter=cast("Any", SimpleNamespace(events=SimpleNamespace(phase=lambda one: Phase.WARM))),
        ended=cast("Any", None),
        lost=cast("Any", None),
        verdict_wait=15.0,
    )
    known.from_state(ID, state(), template=TEMPLATE)
    slot = pod(ip="10.0.0.7")
    slot.metadata.annotations["sandlot.dev/lays-images"] = "true"
    for _ in range(2):
        pods.changed(slot)
    assert asked == [ID]


@pytest.mark.parametrize("reported", ["before", "meanwhile"])
def test_a_pod_that_is_missing_from_a_list_is_gone_unless_it_may_be_newer(reported: str) -> None:
    known, gone = instances(), []
    quiet = SimpleNamespace(
        phase=lambda one: Phase.WARM, owner=lambda one: None, instance_lost=lambda *_: None
    )
    pods = Pods(
        known,
        recorded=cast("Any", SimpleNamespace(has_end=lambda one: False)),
        states=cast("Any", SimpleNamespace(forget=lambda one: None)),
        pool=cast("Any", SimpleNamespace(forget=lambda address: None)),
        reporter=cast("Any", SimpleNamespace(events=quiet)),
        ended=cast("Any", None),
        lost=gone.append,
        verdict_wait=15.0,
    )
    if reported == "before":
        known.from_state(ID, state(), template=TEMPLATE)
    pods.listing()
    if reported == "meanwhile":
        known.from_state(ID, state(), template=TEMPLATE)
    pods.replaced([])
    assert gone == ([ID] if reported == "before" else [])
