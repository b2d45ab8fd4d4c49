"""Nodes whose kubelet rejects a pod: what is remembered of it, for which pods and for how long."""

from __future__ import annotations

from sandlot_controller.plan.placement.ledger import Ledger, NoNode
from sandlot_controller.plan.placement.needs import Needs
from sandlot_controller.plan.placement.rejections import LONGEST, SHORTEST

from tests.controller.placing import CAP, SMALL, ledger_of, needs, node


def reject(ledger: Ledger, kind: Needs, *lacking: str, now: float) -> None:
    ledger.put("i-r", kind, node="n1", starting=True)
    ledger.reject("i-r", lacking, now=now)


def test_a_rejection_is_remembered_for_what_is_as_big_and_for_a_while() -> None:
    ledger = ledger_of(node("n1", cpu=1000))
    reject(ledger, needs(400), "cpu", now=0.0)
    assert ledger.choose(needs(400), cap=CAP) is NoNode.FULL
    assert ledger.choose(needs(399), cap=CAP) == "n1"
    assert ledger.expire(SHORTEST - 1) == SHORTEST
    assert ledger.choose(needs(400), cap=CAP) is NoNode.FULL
    assert ledger.expire(SHORTEST) is None
    assert ledger.choose(needs(400), cap=CAP) == "n1"


def test_room_that_our_own_pods_make_after_a_rejection_is_used() -> None:
    ledger = ledger_of(node("n1", cpu=1000))
    ledger.put("i-1", needs(300), node="n1", starting=False)
    reject(ledger, needs(400), "cpu", now=0.0)
    assert ledger.choose(needs(400), cap=CAP) is NoNode.FULL
    ledger.drop("i-1")
    assert ledger.choose(needs(400), cap=CAP) == "n1"


def test_a_node_that_rejects_again_is_left_alone_for_longer() -> None:
    ledger, now, waits = ledger_of(node("n1", cpu=1000)), 0.0, []
    for _ in range(8):
        reject(ledger, needs(400), "cpu", now=now)
        reject(ledger, needs(400), "cpu", now=now)  # of the same moment
        due = ledger.expire(now)
        assert due is not None
        waits.append(due - now)
        now = due
        ledger.expire(now)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    now += LONGEST
    reject(ledger, needs(400), "cpu", now=now)
    assert ledger.expire(now) == now + SHORTEST


def test_a_rejection_for_another_reason_closes_the_node() -> None:
    ledger = ledger_of(node("n1"))
    reject(ledger, SMALL, now=0.0)
    assert ledger.choose(needs(1, 1), cap=CAP) is NoNode.FULL
    ledger.expire(SHORTEST)
    assert ledger.choose(SMALL, cap=CAP) == "n1"


def test_a_node_that_came_back_starts_without_a_memory() -> None:
    ledger = ledger_of(node("n1"))
    reject(ledger, SMALL, now=0.0)
    ledger.drop_node("n1")
    ledger.put_node(node("n1"))
    assert ledger.choose(SMALL, cap=CAP) == "n1"
