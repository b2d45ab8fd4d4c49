"""The pool that the chart creates while `pools` is empty: when, of which image, and when not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.render import VERSION, of_kind, one, render

OLDER: dict[str, Any] = {"defaultPool": None, "image": {"python": None, "digests": None}}


def test_values_of_a_release_without_it_give_none() -> None:
    """`helm upgrade --reuse-values` passes the older chart's defaults only."""
    assert of_kind(render(OLDER), "SandboxPool") == []


@pytest.mark.parametrize(
    "values",
    [
        {"defaultPool": {"enabled": True, "size": None}},
        {"image": {"python": None}},
        {"image": {"digests": None}},
    ],
)
def test_a_missing_value_is_its_default(values: dict[str, Any]) -> None:
    pool = one(render(values), "SandboxPool", "default")
    assert pool["spec"] == {"size": 2, "template": {"image": f"sandlot/python:{VERSION}"}}
