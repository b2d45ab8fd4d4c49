"""What the accounting asks for, and makes of an answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sandlot import Quota, UsageRow
from sandlot._protocol import accounts


def query(**given: Any) -> str:
    return accounts.query(**{"since": None, "until": None, "group_by": [], "tenant": None, **given})


def test_times_keep_their_zone_and_groups_are_repeated() -> None:
    since = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    assert query(since=since, group_by=["run", "day"], tenant="a&b") == (
        "?since=2026-01-31T12%3A00%3A00%2B02%3A00&group_by=run&group_by=day&tenant=a%26b"
    )
    assert query(until=datetime(2026, 1, 31, tzinfo=UTC)) == "?until=2026-01-31T00%3A00%3A00%2B00%3A00"
    assert query() == ""


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"since": datetime(2026, 1, 31)}, "since"),
        ({"until": "2026-01-31"}, "until"),
        ({"group_by": "run"}, "group_by"),
        ({"group_by": ["image"]}, "group_by"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        query(**given)


def test_an_answer_of_a_newer_server_is_read() -> None:
    answer = {"since": "a", "until": "b", "usage": [{"run": "r", "core_seconds": 2.5, "watts": 3}]}
    assert accounts.report(answer).rows == (UsageRow(run="r", core_seconds=2.5),)


def test_quotas_of_a_newer_server_and_of_one_without_any_are_read() -> None:
    row = {"name": "cores", "limit": 8, "used": None, "burst": 3}
    assert accounts.quotas({"data": {"id": "t", "quotas": [row]}}) == (Quota("cores", limit=8, used=None),)
    assert accounts.quotas({"data": {"id": "t"}}) == ()
