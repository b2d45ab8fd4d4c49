"""The tokens of an instance are what they were in every version: sidecars that run know those of an earlier one."""

from __future__ import annotations

import hashlib
import hmac

from sandlot_contract.tokens import instance_token, mac
from sandlot_controller.tokens import InstanceTokens
from sandlot_gateway.tokens import Tokens

KEY = b"0123456789abcdef"
ID = "i-0123456789abcdef"
TOKEN = "sit_JpPflz3duAoJKeeU7EFzzLm2mYAwMCoypUmOq5zRU3E"


def test_gateway_and_controller_make_the_same_instance_token() -> None:
    assert instance_token(KEY, ID) == InstanceTokens(KEY).instance(ID) == Tokens(KEY).instance(ID) == TOKEN


def test_a_webhooks_sender_shows_the_hmac_that_the_page_tells() -> None:
    wanted = hmac.new(TOKEN.encode(), b"webhook", hashlib.sha256).hexdigest()
    assert Tokens(KEY).webhook_sender(ID) == wanted


def test_parts_that_join_to_the_same_bytes_have_different_macs() -> None:
    assert len({mac(KEY, *parts) for parts in ((b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""))}) == 4
