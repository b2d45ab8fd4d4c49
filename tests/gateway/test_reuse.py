"""Which used instances a pool takes back: its policy, its owner, its template, the uses and the age."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec, Reuse
from sandlot_gateway.core.reuse import UNBOUND, Binding, takes_back

HOST, OTHER = Template("host"), Template("other")
POOL = PoolSpec("a", HOST, 2, reuse=Reuse(ReusePolicy.TENANT, max_uses=3, max_age=60.0))
INSTANCE = Instance("i-1", HOST, "unix:/1", "token", started_at=1000.0)


def test_a_pool_takes_back_what_its_tenant_used() -> None:
    assert takes_back(POOL, INSTANCE, Binding("t", 1), now=1001.0)
    assert takes_back(replace(POOL, owner="t"), INSTANCE, Binding("t", 2), now=1059.0)


@pytest.mark.parametrize(
    ("changes", "instance", "binding", "now"),
    [
        ({"reuse": Reuse(ReusePolicy.NEVER)}, {}, Binding("t", 1), 1001.0),
        ({"owner": "u"}, {}, Binding("t", 1), 1001.0),
        ({"template": OTHER}, {}, Binding("t", 1), 1001.0),
        ({}, {}, Binding("t", 3), 1001.0),
        ({}, {}, Binding("t", 1), 1060.0),
        ({}, {"started_at": None}, Binding("t", 1), 1001.0),
        ({}, {}, UNBOUND, 1001.0),
    ],
    ids=["policy", "owner", "template", "uses", "age", "unknown age", "unknown tenant"],
)
def test_a_pool_does_not_take_back(
    changes: dict[str, object], instance: dict[str, object], binding: Binding, now: float
) -> None:
    assert not takes_back(replace(POOL, **changes), replace(INSTANCE, **instance), binding, now=now)


def test_a_use_counts() -> None:
    assert UNBOUND.used_by("t") == Binding("t", 1)
    assert Binding("t", 1).used_by("t") == Binding("t", 2)
