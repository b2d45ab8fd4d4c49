"""Tokens: only for what they were made for, until they expire, and the same from every gateway with the key."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_gateway.tokens import Tokens

KEY = b"0123456789abcdef"
FUTURE = int(time.time()) + 7 * 86_400  # from the collection on, which may be long before a test


def test_a_second_gateway_with_the_key_makes_and_takes_the_same_tokens():
    one, two = Tokens(KEY), Tokens(KEY)
    assert one.instance("i-1") == two.instance("i-1")
    assert one.sandbox("i-1", 1, "sb-1") == two.sandbox("i-1", 1, "sb-1")
    assert two.check_client(one.client("sb-1", "acme", FUTURE), "sb-1") == "acme"


def test_every_part_of_a_claim_changes_its_token():
    tokens = Tokens(KEY)
    made = {
        tokens.instance("i-1"),
        tokens.instance("i-2"),
        tokens.sandbox("i-1", 1, "sb-1"),
        tokens.sandbox("i-1", 2, "sb-1"),
        tokens.sandbox("i-1", 1, "sb-2"),
        tokens.sandbox("i-11", 1, "sb-1"),
        Tokens(KEY + b"x").instance("i-1"),
    }
    assert len(made) == 7


def test_a_client_token_expires_also_when_it_was_verified_before(monkeypatch):
    tokens = Tokens(KEY)
    token = tokens.client("sb-1", "acme", FUTURE)
    assert tokens.check_client(token, "sb-1") == "acme"
    monkeypatch.setattr(time, "time", lambda: FUTURE + 0.1)
    assert tokens.check_client(token, "sb-1") is None


def test_no_other_spelling_of_a_token_is_valid():
    tokens = Tokens(KEY)
    token = tokens.client("sb-1", "acme", FUTURE)
    for at in range(len(token)):
        for other in ("A", "B", "-", "=", ".", "\u00e9"):
            if token[at] != other:
                assert tokens.check_client(token[:at] + other + token[at + 1 :], "sb-1") is None
    for wrong in (token + "=", token + "A", token[:-1], token.swapcase(), f" {token}"):
        assert tokens.check_client(wrong, "sb-1") is None


@given(sandbox_id=st.text(), tenant=st.text(), other=st.text())
def test_a_token_names_its_tenant_and_opens_its_sandbox_only(sandbox_id, tenant, other):
    tokens = Tokens(KEY)
    token = tokens.client(sandbox_id, tenant, FUTURE)
    assert tokens.check_client(token, sandbox_id) == tenant
    if other != sandbox_id:
        assert tokens.check_client(token, other) is None


@given(token=st.text(max_size=200))
def test_nonsense_is_no_token_and_no_error(token):
    assert Tokens(KEY).check_client(token, "sb-1") is None
    assert Tokens(KEY).check_client("sct_" + token, "sb-1") is None


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        Tokens(b"short")


def test_the_cache_of_verified_tokens_is_bounded():
    tokens = Tokens(KEY)
    first = tokens.client("sb-0", "acme", FUTURE)
    for n in range(20_100):
        assert tokens.check_client(tokens.client(f"sb-{n}", "acme", FUTURE), f"sb-{n}") == "acme"
    assert len(tokens._verified) == 20_000
    assert tokens.check_client(first, "sb-0") == "acme"
