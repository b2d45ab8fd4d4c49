"""What is kept for whom: a body is collected only of who has shown a key, whatever its headers leave out."""

from __future__ import annotations

import base64

import pytest
from sandlot_gateway.credentials import Credentials
from sandlot_gateway.egress import BadTarget, canonical
from sandlot_gateway.keys import Keys
from sandlot_gateway.ssh.listener import Listener

KEY = (b"authorization", b"Bearer key-a")
JUDGE = Credentials(keys=Keys(["key-a:alpha"]))


@pytest.mark.parametrize(
    ("version", "method", "headers", "refused"),
    [
        ("1.1", "POST", [], False),  # no length and no encoding: no body
        ("1.1", "POST", [(b"content-length", b"5")], True),
        ("1.1", "POST", [(b"transfer-encoding", b"chunked")], True),
        ("1.1", "POST", [(b"content-length", b"5"), KEY], False),
        ("2", "POST", [], True),  # a body may come
        ("2", "POST", [(b"content-length", b"0")], False),
        ("2", "POST", [KEY], False),
        ("2", "GET", [], False),
        ("2", "PUT", [(b"authorization", b"Bearer wrong")], True),
    ],
)
def test_a_body_is_read_for_who_has_a_key(
    version: str, method: str, headers: list[tuple[bytes, bytes]], refused: bool
) -> None:
    scope = {"http_version": version, "method": method, "headers": headers}
    assert (JUDGE.refusal(scope) is not None) is refused


@pytest.mark.parametrize("entry", ["".join(map(chr, range(0x4E00, 0x4E00 + 290))), "a." * 200, "x" * 64])
def test_an_entry_that_costs_too_much_to_read_is_refused(entry: str) -> None:
    """3,000 different characters in one name held the loop for more than a second; a body may have 600,000."""
    with pytest.raises(BadTarget, match="longer than") as error:
        canonical(allowlist=[entry], denylist=None)
    assert len(str(error.value)) < 1500


def test_a_public_key_without_a_bottom_is_none() -> None:
    """asyncssh reads a key's parts inside one another by calling itself."""
    data = b""
    for _ in range(3000):
        size = len(data).to_bytes((len(data).bit_length() + 7) // 8 or 1, "big")
        data = b"\x30" + (size if len(data) < 128 else bytes([0x80 | len(size)]) + size) + data
    text = base64.encodebytes(data).decode()
    assert Listener.fingerprint(f"-----BEGIN PUBLIC KEY-----\n{text}-----END PUBLIC KEY-----\n") is None
