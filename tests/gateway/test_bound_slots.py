"""To which tenant the ledger holds a slot bound, in every phase; see sandlot_gateway/core/slots.py."""

from __future__ import annotations

from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.ready import any_pool
from sandlot_gateway.core.reuse import Binding
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.core.slots import Slots

from tests.gateway.test_slots import INSTANCE, KNOWN, NEWS, TEMPLATE, claimed, made, phase


def taken(slots: Slots, *, tenant: str) -> Instance | None:
    hold = slots.take(TEMPLATE.key, tenant=tenant)
    return hold.instance if hold is not None else None


def test_a_slot_is_bound_as_its_reports_say() -> None:
    slots = made("absent")
    bound = Binding("t", 1)
    slots.report_warm(INSTANCE, 2, bound)
    slots.wait(INSTANCE)
    assert slots.bound_to("i-1") == "t"
    assert slots.report_warm(INSTANCE, 2, bound) is KNOWN
    assert slots.take(TEMPLATE.key, tenant="u") is None
    assert slots.take(TEMPLATE.key) is None
    assert taken(slots, tenant="t") is INSTANCE
    slots = made("warm")
    assert slots.report_warm(INSTANCE, 3, bound) is KNOWN, "another gateway has used it"
    assert slots.take(TEMPLATE.key, tenant="u") is None
    assert taken(slots, tenant="t") is INSTANCE
    slots = made("owned")
    assert slots.report_owned(INSTANCE, 2, "sb-mine", Binding("t", 4)) is KNOWN
    end = slots.end("i-1", "sb-mine")
    assert end is not None
    assert end.binding == Binding("t", 4)
    slots = made("unheard")
    assert slots.report_owned(INSTANCE, 2, "sb-mine", bound) is NEWS
    assert slots.bound_to("i-1") == "t"


def test_a_late_report_changes_no_binding() -> None:
    for name in ("granted", "claiming", "owned", "ending"):
        slots = made(name)
        before = slots.bound_to("i-1")
        slots.report_warm(INSTANCE, 2, Binding("another", 9))
        assert slots.bound_to("i-1") == before


def test_an_owner_binds_it_once_its_claim_is_accepted() -> None:
    slots = made("absent")
    hold = claimed(slots)
    assert slots.bound_to("i-1") is None
    assert hold.claim is not None
    assert hold.claim.binding == Binding("t", 1)
    slots.holds.accepted(hold)
    assert slots.bound_to("i-1") == "t"
    end = slots.end("i-1", "sb-mine")
    assert end is not None
    assert end.binding == Binding("t", 1)
    slots.was_reset("i-1", 2)
    assert slots.bound_to("i-1") == "t"
    slots = made("absent")
    slots.holds.outdone(claimed(slots))
    assert slots.bound_to("i-1") is None


def test_one_that_another_tenant_used_is_put_back_for_that_one() -> None:
    slots = made("absent")
    assert slots.holds.put_back(claimed(slots), binding=Binding("u", 1)) is INSTANCE
    slots.wait(INSTANCE)
    assert slots.take(TEMPLATE.key, tenant="t") is None
    assert taken(slots, tenant="u") is INSTANCE


def test_one_that_is_evicted_is_ending() -> None:
    slots = made("absent")
    slots.report_warm(INSTANCE, 2, Binding("t", 1))
    slots.wait(INSTANCE)
    assert slots.evict(TEMPLATE.key, tenant="t", allowed=any_pool) is None
    assert slots.evict(TEMPLATE.key, tenant="u", allowed=any_pool) is INSTANCE
    assert phase(slots) is Phase.ENDING
    assert slots.evict(TEMPLATE.key, tenant="u", allowed=any_pool) is None
    assert made("warm").evict(TEMPLATE.key, tenant="u", allowed=any_pool) is None, "it is bound to nobody"
