"""What usage costs: exact sums, prices that change while the gateway runs, and prices that cannot be used."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.backends.local.gpu_models import is_type
from sandlot_gateway.core.costs import Cost, text
from sandlot_gateway.core.usage import Amounts, Document, Key, Stay, Totals
from sandlot_gateway.followed_file import BadContent
from sandlot_gateway.prices import BadPrices, PriceList
from sandlot_gateway.usage.sums import Sums

from tests.gateway.conftest import OPERATOR, Running, running
from tests.gateway.machine import Machine
from tests.gateway.test_run_leases import RUNS, begin, create
from tests.waiting import until

PRICES: dict[str, Any] = {
    "currency": "EUR",
    "core_hour": "3600",
    "memory_gib_hour": 0.07,
    "disk_gib_hour": "0.000000001",
    "gpu_hour": {"*": "1.5", "H100": 2.9},
}
PARTS = ("cores", "memory", "disk", "gpus")


def price_list(given: object = PRICES) -> PriceList:
    found = PriceList()
    found.replace(json.dumps(given).encode())
    return found


def test_an_hour_of_each_costs_its_price_to_the_last_digit() -> None:
    prices = price_list().now
    assert prices is not None
    hours = Amounts(1, 3600.0, 2 * 3600.0, 3 * 3600.0, 3600.0, 4 * 3600.0, {"H100": 3600.0, "L4": 3600.0})
    cost = prices.cost(hours)
    assert [text(getattr(cost, part)) for part in PARTS] == ["7200.00", "0.21", "0.000000001", "7.40"]
    assert text(cost.total) == "7207.610000001"


@pytest.mark.parametrize(
    ("billionths", "shown"),
    [
        (0, "0.00"),
        (1, "0.000000001"),
        (10**9, "1.00"),
        (1_230_000_000, "1.23"),
        (10**24 + 5, f"1{'0' * 15}.000000005"),
    ],
)
def test_an_amount_is_shown_with_all_its_digits(billionths: int, shown: str) -> None:
    assert text(billionths) == shown


def test_one_price_of_gpus_is_that_of_all_types_and_what_has_no_price_is_free() -> None:
    prices = price_list({"currency": "USD", "gpu_hour": "2"}).now
    assert prices is not None
    cost = prices.cost(Amounts(1, 60.0, 60.0, 60.0, 60.0, 7200.0, {"H100": 3600.0}))
    assert cost == Cost(gpus=4 * 10**9)


@pytest.mark.parametrize(
    ("kind", "price"),
    [("NVIDIA-H100-80GB-HBM3", 3), ("h100", 3), ("L40S", 9), ("NVIDIA", 9), ("RTX 4090 24GB", 2), ("RTX", 9)],
)
def test_locally_a_price_is_for_all_types_with_its_words(kind: str, price: int) -> None:
    found = PriceList(is_type)
    found.replace('{"currency": "EUR", "gpu_hour": {"*": 9, "H100": 3, "L4": 1, "RTX4090": 2, "4090": 1}}')
    assert found.now is not None
    assert found.now.cost(Amounts(1, gpu_seconds=3600.0, gpu_types={kind: 3600.0})).gpus == price * 10**9


AMOUNTS = st.tuples(
    st.integers(0, 3),  # hour
    st.sampled_from(["r", "s", ""]),
    st.floats(0, 4000, allow_nan=False).map(lambda seconds: round(seconds, 3)),
    st.sampled_from(["", "H100", "L4"]),
)


@given(st.lists(AMOUNTS, max_size=40), st.lists(AMOUNTS, max_size=20))
@settings(deadline=None)
def test_the_cost_of_parts_adds_up_to_the_whole(
    documents: list[tuple[int, str, float, str]], running_on: list[tuple[int, str, float, str]]
) -> None:
    """Whatever the groups and gateways: two documents, and sandboxes that still run."""
    prices = price_list().now
    totals = [Totals(), Totals()]
    for number, (hour, run, seconds, kind) in enumerate(documents):
        gpus = {kind: seconds} if kind else {}
        amounts = Amounts(1, seconds, seconds / 3, seconds, seconds, seconds, gpus)
        totals[number % 2].add(Key(hour, "t", run), amounts)
    stays = [
        (
            Stay(SandboxId(f"sb-{n}"), "t", run, 0.3, 1.0, 1.0, 1, hour * 3600.0, InstanceId("i"), 1, kind),
            hour * 3600.0 + seconds,
        )
        for n, (hour, run, seconds, kind) in enumerate(running_on)
    ]

    def costs(group: Any) -> list[Cost]:
        sums = Sums(first=0, last=9, tenant=None, group=group, most=1000, prices=prices)
        for gateway, each in enumerate(totals):
            sums.add_document((0, f"gateway-{gateway}"), Document().plus(each, marks=[]))  # pyright: ignore[reportArgumentType]
        sums.add_stays(stays)
        found = [used.cost for used in sums.groups.values()]
        return [cost for cost in found if cost is not None]

    def whole(found: list[Cost]) -> list[int]:
        return [sum(getattr(cost, part) for cost in found) for part in (*PARTS, "total")]

    expected = whole(costs(lambda key: 0))
    assert expected[-1] == sum(expected[:-1])
    for group in (lambda key: key.run, lambda key: key.hour, lambda key: key):
        assert whole(costs(group)) == expected
    seconds = sum(seconds for _, _, seconds, _ in (*documents, *running_on))
    rows = 3 * (len(documents) + len(running_on)) + 1
    assert (
        abs(expected[1] - round(Decimal("0.07") * round(seconds * 1000) * 10**9 / 3_600_000)) <= rows * 20_000
    )


async def answer(box: Running, path: str, **params: Any) -> dict[str, Any]:
    found = await box.client.get(path, params=params)
    assert found.status_code == 200, found.text
    return found.json()


def added(parts: list[dict[str, Any]]) -> dict[str, Decimal]:
    return {name: sum((Decimal(part[name]) for part in parts), Decimal(0)) for name in (*PARTS, "total")}


async def test_usage_and_report_have_the_cost_by_the_prices_of_now(
    state_dir: Path, machine: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "prices.json"
    file.write_text("{}")
    async with running(state_dir, machine, prices_file=file) as box:
        for run in ("cost-a", "cost-b"):
            await begin(box, run, grace_seconds=600)
            made = (await create(box, run)).json()
            assert (await box.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        usage = await answer(box, "/api/v1/usage")
        assert {row["cost"] for row in usage["usage"]} == {None}
        assert (await answer(box, f"{RUNS}/cost-a/report"))["usage"]["cost"] is None
        file.write_text(json.dumps(PRICES))

        async def priced() -> bool:
            return (await answer(box, f"{RUNS}/cost-a/report"))["usage"]["cost"] is not None

        await until(priced)
        rows = (await answer(box, "/api/v1/usage"))["usage"]
        for row in rows:
            # One core at 3,600 an hour is 1 a second.
            assert float(row["cost"]["cores"]) == pytest.approx(row["core_seconds"], abs=0.002)
            assert row["cost"]["currency"] == "EUR"
            assert added([row["cost"]])["total"] == sum(Decimal(row["cost"][part]) for part in PARTS)
        [whole] = (await answer(box, "/api/v1/usage", group_by="tenant"))["usage"]
        reports = [
            (await answer(box, f"{RUNS}/{run}/report"))["usage"]["cost"] for run in ("cost-a", "cost-b")
        ]
        expected = {name: Decimal(whole["cost"][name]) for name in (*PARTS, "total")}
        assert added([row["cost"] for row in rows]) == added(reports) == expected
        file.write_text(json.dumps({"currency": "USD", "core_hour": "7200"}))

        async def doubled() -> bool:
            cost = (await answer(box, f"{RUNS}/cost-a/report"))["usage"]["cost"]
            return cost["currency"] == "USD"

        await until(doubled)
        cost = (await answer(box, f"{RUNS}/cost-a/report"))["usage"]["cost"]
        assert cost["total"] == cost["cores"]
        assert Decimal(cost["cores"]) == 2 * Decimal(reports[0]["cores"])


async def test_prices_that_cannot_be_used_change_nothing(
    state_dir: Path, machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(PRICES))
    async with running(state_dir, machine, prices_file=file) as box:
        file.write_text('{"currency": "EUR", "core_hour": 1e9999999999999999999}')

        async def failing() -> bool:
            metrics = await box.client.get("/metrics", headers=box.as_tenant(OPERATOR))
            return 'sandlot_reload_failing{file="prices"} 1.0' in metrics.text

        await until(failing)
        assert any("core_hour: must be" in record.getMessage() for record in caplog.records)
        made = await box.create(run="still")
        assert (await box.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert (await answer(box, "/api/v1/usage"))["usage"][0]["cost"]["currency"] == "EUR"
    with pytest.raises(BadContent, match=f"cannot use the prices file {file}: core_hour: must be a decimal"):
        async with running(state_dir, machine, prices_file=file):
            pass


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"core_hour": "1"}', "currency: must be a code of three capital letters such as EUR"),
        ('{"currency": "eur"}', "currency: must be"),
        ('{"currency": 5}', "currency: must be"),
        ('{"currency": "EUR", "core_hour": "1e3"}', "core_hour: must be a decimal from 0 to 1000000 with at most 9"),
        ('{"currency": "EUR", "core_hour": null}', "core_hour: must be"),
        ('{"currency": "EUR", "core_hour": NaN}', "core_hour: must be"),
        ('{"currency": "EUR", "core_hour": true}', "core_hour: must be"),
        ('{"currency": "EUR", "memory_gib_hour": -1}', "memory_gib_hour: must be"),
        ('{"currency": "EUR", "memory_gib_hour": 1000000.1}', "memory_gib_hour: must be"),
        ('{"currency": "EUR", "disk_gib_hour": 0.0000000001}', "disk_gib_hour: must be"),
        ('{"currency": "EUR", "core_hour": 1e9999999999999999999}', "core_hour: must be"),
        ('{"currency": "EUR", "core_hour": 1e-99999999999999999999}', "core_hour: must be"),
        ('{"currency": "EUR", "core_hour": -1e99999999999999999999}', "core_hour: must be"),
        ('{"currency": "EUR", "gpu_hour": {"*": 1e99999999999999999999}}', "gpu_hour\\['\\*'\\]: must be"),
        ('{"currency": "EUR", "disk_gib_hour": 1e999999999}', "disk_gib_hour: must be"),
        ('{"currency": "EUR", "disk_gib_hour": 1e-999999999}', "disk_gib_hour: must be"),
        ('{"currency": "EUR", "disk_gib_hour": ' + "9" * 5000 + "}", "disk_gib_hour: must be"),
        ('{"currency": "EUR", "gpu_hour": {"H100": 1}}', 'gpu_hour: must have "\\*", the price'),
        ('{"currency": "EUR", "gpu_hour": {"*": 1, "H100": "x"}}', "gpu_hour\\['H100'\\]: must be"),
        ('{"currency": "EUR", "gpu_hour": {"*": 1, "": 1}}', "gpu_hour: a type has 1 to 100 characters, not 0"),
        ('{"currency": "EUR", "gpu_hour": [1]}', "gpu_hour: must be"),
        ('{"currency": "EUR", "cpu_hour": "1"}', "'cpu_hour': there is no such price; use currency, core_hour"),
        ('{"currency": "EUR", "currency": "USD"}', "'currency' is there twice"),
        ("[]", "it must be an object such as"),
        ("", "it is not JSON"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)  # fmt: skip
def test_bad_prices_name_the_field_and_change_nothing(given: str, said: str) -> None:
    found = price_list()
    before = found.now
    with pytest.raises(BadPrices, match="^" + said):
        found.replace(given.encode())
    assert found.now is before
