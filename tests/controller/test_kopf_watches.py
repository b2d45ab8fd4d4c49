"""When kopf's watches count as working."""

from __future__ import annotations

from sandlot_controller.kopf_watches import KopfWatches
from sandlot_kube import paths

NAMESPACE = "sandboxes"
SANDBOXES, WARMUPS = paths.sandboxes(NAMESPACE), paths.warmups(NAMESPACE)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_they_work_again_when_all_have_been_open_for_some_seconds() -> None:
    clock = Clock()
    watches = KopfWatches(NAMESPACE, clock=clock)
    for path in (SANDBOXES, WARMUPS):
        watches.answered(path, watch=False, wrong=None)
        watches.answered(path, watch=True, wrong=None)
    watches.answered(WARMUPS, watch=True, wrong="status 503")
    clock.now += 100
    assert watches.failure == f"{WARMUPS}: status 503"
    assert watches.failing_for == 100
    watches.answered(WARMUPS, watch=True, wrong=None)
    clock.now += 1
    assert watches.failure is not None, "a server may fail it as soon as it is open"
    clock.now += 5
    assert watches.failure is None


def test_a_resource_that_is_not_installed_is_not_waited_for() -> None:
    """kopf asks for none of it: one passing failure of the other counted for ever, and the leader gave up."""
    clock = Clock()
    watches = KopfWatches(NAMESPACE, clock=clock)
    watches.answered(SANDBOXES, watch=True, wrong="status 503")
    watches.answered(SANDBOXES, watch=True, wrong=None)
    clock.now += 6
    assert watches.failure is None


def test_a_failure_of_kopf_itself_is_one_until_its_next_run_watches_all() -> None:
    clock = Clock()
    watches = KopfWatches(NAMESPACE, clock=clock)
    for path in (SANDBOXES, WARMUPS):
        watches.answered(path, watch=True, wrong=None)
    watches.failed("kopf failed: no reason")
    clock.now += 6
    assert watches.failure == "kopf failed: no reason"
    watches.answered(SANDBOXES, watch=True, wrong=None)
    watches.answered(WARMUPS, watch=False, wrong=None)
    clock.now += 6
    assert watches.failure == "kopf failed: no reason"
    watches.answered(WARMUPS, watch=True, wrong=None)
    clock.now += 6
    assert watches.failure is None


def test_a_resource_that_kopf_asks_for_is_not_ignored_however_late_its_list_is() -> None:
    clock = Clock()
    watches = KopfWatches(NAMESPACE, clock=clock)
    watches.asked(SANDBOXES)
    watches.answered(SANDBOXES, watch=True, wrong=None)
    assert not watches.ignored, "kopf may be about to ask for it"
    clock.now += 6
    assert watches.ignored == {WARMUPS}
    watches.asked(WARMUPS)
    clock.now += 6
    assert not watches.ignored


def test_a_missing_definition_is_told_until_kopf_asks_for_it_and_is_no_reason_to_give_up() -> None:
    clock = Clock()
    watches = KopfWatches(NAMESPACE, clock=clock)
    watches.answered(SANDBOXES, watch=True, wrong=None)
    clock.now += 6
    watches.undefined(watches.ignored)
    assert watches.failure is not None
    assert "imagewarmups.sandlot.dev" in watches.failure
    assert watches.failing_for == 0
    watches.ended()
    assert watches.failure is not None, "kopf has yet to ask for it"
    watches.asked(WARMUPS)
    assert watches.failure is None


def test_an_end_does_not_bring_an_old_failure_back() -> None:
    clock = Clock()
    watches = KopfWatches(NAMESPACE, clock=clock)
    watches.answered(SANDBOXES, watch=True, wrong="status 503")
    watches.answered(SANDBOXES, watch=True, wrong=None)
    clock.now += 1000
    watches.ended()
    assert watches.failing_for == 0
