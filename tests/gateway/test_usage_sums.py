"""The pure sums of usage: whatever the times, nothing is lost between hours, and nothing is added twice."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.backends.kubernetes.usage_store import pack, unpack
from sandlot_gateway.core.usage import HOUR, OTHERS, Amounts, Document, Key, Stay, Totals

from tests.usage import full_document

NAMES = st.sampled_from(["a", "b", "c"])
TIMES = st.floats(1.7e9, 1.7e9 + 400_000)


@st.composite
def stays(draw: st.DrawFn) -> tuple[Stay, float]:
    begin = draw(TIMES)
    stay = Stay(
        SandboxId("sb-1"),
        draw(NAMES),
        draw(st.sampled_from(["", "run-1", "run-2"])),
        cpu=draw(st.sampled_from([0.1, 1.0, 7.5])),
        memory=draw(st.sampled_from([0.25, 16.0])),
        disk=5.0,
        gpus=draw(st.integers(0, 8)),
        begin=begin,
        instance_id=InstanceId("i-1"),
    )
    return stay, begin + draw(st.floats(-10, 300_000))


@given(stays())
def test_the_hours_of_a_stay_are_all_of_it(given: tuple[Stay, float]) -> None:
    stay, end = given
    rows = list(stay.rows(end))
    lasted = max(end - stay.begin, 0.0)
    assert sum(amounts.sandboxes for _, amounts in rows) == 1
    assert sum(amounts.seconds for _, amounts in rows) == pytest.approx(lasted, abs=1e-4)
    assert sum(amounts.core_seconds for _, amounts in rows) == pytest.approx(lasted * stay.cpu, abs=1e-3)
    assert sum(amounts.gpu_seconds for _, amounts in rows) == pytest.approx(lasted * stay.gpus, abs=1e-3)
    for key, amounts in rows:
        assert 0 <= amounts.seconds <= HOUR
        assert key.hour * HOUR <= max(end, stay.begin)
        assert stay.begin < (key.hour + 1) * HOUR
    assert rows[0][1].sandboxes == 1
    assert rows[0][0].hour == int(stay.begin // HOUR)


@given(stays(), st.integers(-5, 90), st.integers(-5, 90))
def test_some_hours_of_a_stay_are_those_of_all(given: tuple[Stay, float], first: int, hours: int) -> None:
    stay, end = given
    first += int(stay.begin // HOUR)
    last = first + hours
    wanted = [row for row in stay.rows(end) if first <= row[0].hour <= last]
    assert list(stay.rows(end, first=first, last=last)) == wanted


@given(st.lists(stays(), max_size=20), st.integers(0, 20))
def test_sums_do_not_depend_on_when_they_are_written(given: list[tuple[Stay, float]], cut: int) -> None:
    whole, document = Totals(), Document()
    for part in (given[:cut], given[cut:]):
        sums = Totals()
        for stay, end in part:
            whole.add_stay(stay, end)
            sums.add_stay(stay, end)
        written = msgspec.json.encode(document.plus(sums, marks=[1]))
        document = msgspec.json.decode(written, type=Document)
    assert document.totals.rows.keys() == whole.rows.keys()
    for key, amounts in document.totals.rows.items():
        for name in Amounts.__struct_fields__:
            assert getattr(amounts, name) == pytest.approx(getattr(whole.rows[key], name), abs=2e-3)


def test_a_tenant_with_many_runs_has_bounded_rows_and_whole_sums() -> None:
    totals = Totals(bounded=True)
    for number in range(5_000):
        totals.add(Key(1, "loud", f"run-{number}"), Amounts(1, 2.0))
    totals.add(Key(1, "quiet", "run"), Amounts(1, 3.0))
    assert len(totals.rows) == 1_002
    assert totals.rows[Key(1, "loud", OTHERS)].sandboxes == 4_000
    assert sum(amounts.sandboxes for amounts in totals.rows.values()) == 5_001
    assert totals.rows[Key(1, "quiet", "run")].seconds == 3.0


def test_a_full_document_is_one_that_an_api_server_takes() -> None:
    document = full_document()
    assert len(pack(document)) < 900_000  # of 1,048,576 bytes
    assert unpack(pack(document)) == document
    assert sum(row.amounts.sandboxes for row in document.rows) == 20_000


def test_types_of_gpus_do_not_overfill_a_document() -> None:
    chance, totals, document = random.Random(2), Totals(), Document()
    for number in range(4_000):
        key = Key(490_000 + number % 24, f"tenant-{number % 40}", f"run-{chance.random()}")
        types = {"".join(map(chr, chance.choices(range(0x4E00, 0x9FFF), k=100))): 1.5 for _ in range(16)}
        totals.add(key, Amounts(1, *(chance.uniform(0, 1e8) for _ in range(5)), gpu_types=types))
        if number % 1000 == 999:
            document = document.plus(totals, marks=[])
            totals = Totals()
    assert len(pack(document)) < 950_000  # of 1,048,576 bytes
    assert sum(row.amounts.sandboxes for row in document.rows) == 4_000
    kept = document.plus(Totals(), marks=[])
    assert kept == document, "what is kept is kept as it is read and written again"


def test_long_sandboxes_of_many_tenants_do_not_overfill_a_document() -> None:
    totals, month = full_document().totals, 30 * 24
    before = sum(amounts.seconds for amounts in totals.rows.values())
    for number in range(100):
        for hour in range(490_000, 490_000 + month):
            totals.add(Key(hour, f"old-{number}", "long"), Amounts(0, 3600.0, 0.001 * hour * number))
    document = Document().plus(totals, marks=[])
    assert len(pack(document)) < 950_000  # of 1,048,576 bytes
    after = sum(row.amounts.seconds for row in document.rows)
    assert after - before == pytest.approx(100 * month * 3600.0)


def test_a_clock_that_jumps_makes_no_endless_rows() -> None:
    stay = Stay(SandboxId("sb-1"), "a", "", 1.0, 1.0, 1.0, 0, begin=1.0, instance_id=InstanceId("i-1"))
    assert len(list(stay.rows(1.7e9))) <= 400 * 24 + 1


def test_gpu_seconds_are_kept_by_the_type_that_was_asked_for() -> None:
    def stay(gpus: int, kind: str) -> Stay:
        return Stay(SandboxId("sb"), "t", "r", 1.0, 1.0, 1.0, gpus, 1800.0, InstanceId("i"), 1, kind)

    totals = Totals()
    for one in (stay(2, "H100"), stay(1, ""), stay(0, "")):
        totals.add_stay(one, 5400.0)
    document = msgspec.json.decode(msgspec.json.encode(Document().plus(totals, marks=[1])), type=Document)
    for _, amounts in document.totals.rows.items():
        assert (amounts.gpu_seconds, amounts.gpu_types) == (5400.0, {"H100": 3600.0})


def test_a_document_of_before_has_no_types_of_gpus() -> None:
    old = b'{"marks": [1], "rows": [[7, "t", "r", [1, 2.0, 3.0, 4.0, 5.0, 6.0]]], "early": {}}'
    totals = msgspec.json.decode(old, type=Document).totals
    assert totals.rows == {Key(7, "t", "r"): Amounts(1, 2.0, 3.0, 4.0, 5.0, 6.0)}


def test_a_row_keeps_a_bounded_number_of_types() -> None:
    totals = Totals(bounded=True)
    for number in range(1000):
        totals.add(Key(1, "t", ""), Amounts(1, gpu_seconds=1.0, gpu_types={f"type-{number}": 1.0}))
    [row] = totals.rows.values()
    assert (row.gpu_seconds, len(row.gpu_types)) == (1000.0, 16)
