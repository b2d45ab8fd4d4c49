"""What a policy of names and addresses says of a connection."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sandlot_sidecar.server.egress import body
from sandlot_sidecar.server.egress.policy import Policy

TEN = 10 << 24
LABELS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)


def policy(*rules: list[Any], allow: bool = True) -> Policy:
    return Policy(allow=allow, rules=body.parse({"allow": allow, "rules": list(rules)})["rules"])


def test_a_name_is_meant_at_its_ports_alone():
    held = policy(["a.org", 443], ["b.org", 0])
    assert held.ports == [80, 443]
    said = [(name, port) for name in ("a.org", "b.org") for port in (80, 443) if held.lets_name(name, port)]
    assert said == [("a.org", 443), ("b.org", 80), ("b.org", 443)]
    assert policy(["a.org", 443]).ports == [443]


@given(LABELS, LABELS)
def test_a_wildcard_is_all_that_ends_with_it_and_not_itself(name: list[str], end: list[str]):
    below = len(name) > len(end) and name[-len(end) :] == end
    rule = ["*." + ".".join(end), 0]
    assert policy(rule).lets_name(".".join(name), 80) is below
    assert policy(rule, allow=False).lets_name(".".join(name), 80) is not below


def test_a_denied_address_stays_denied_under_any_name():
    held = policy(["a.org", 0], [TEN, 8, 443, 443], allow=False)
    assert held.lets_name("b.org", 443)
    assert [held.lets_address(TEN + 1, port) for port in (80, 443)] == [True, False]


def test_an_allowed_name_leads_into_no_private_network_that_is_not_allowed_as_well():
    held = policy(["a.org", 0], [TEN, 24, 443, 443])
    private = [TEN + 257, (172 << 24) + (31 << 16), (192 << 24) + (168 << 16) + 5, (100 << 24) + (64 << 16)]
    assert [held.lets_address(each, 443) for each in private] == [False] * 4
    assert [held.lets_address(TEN + 1, port) for port in (80, 443)] == [False, True]
    public = [(172 << 24) + (32 << 16), (198 << 24) + (51 << 16), (100 << 24) + (128 << 16)]
    assert all(held.lets_address(each, 443) for each in public)
    assert policy(["a.org", 0], allow=False).lets_address(TEN + 1, 443)


def test_name_servers_are_asked_where_names_are_allowed():
    server = TEN + 53
    assert policy(["a.org", 0]).rules([server]) == [(server, 32, 53, 53)]
    for held in (policy(["a.org", 0], allow=False), policy([TEN, 8, 0, 0])):
        assert (server, 32, 53, 53) not in held.rules([server])
