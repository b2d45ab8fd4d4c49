"""Derives and verifies all credentials of the gateway from one master key, without state."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable

from sandlot_contract import tokens
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.sidecar import WEBHOOK_SENDER
from sandlot_contract.tokens import MIN_KEY, encode

_CACHED = 20_000  # verified client tokens to cache; about 8 MB when full


class Tokens:
    """HMAC-SHA256 tokens: `sit_…` for an instance, `sst_…` for a claim of it, `sct_…` for a client, `spt_…` for a peer.

    The same inputs give the same token, so a restarted gateway with the same key needs no store.
    """

    NONCE = 16  # hexadecimal digits, from which the id of an exposure or SSH session is derived

    def __init__(self, key: bytes) -> None:
        if len(key) < MIN_KEY:
            raise ValueError(f"the master key must have at least {MIN_KEY} bytes")
        self._key = key
        # Unix seconds on a clock that all gateways share: they check each other's tokens, and machines' clocks differ.
        self.now: Callable[[], float] = lambda: time.time()
        self._verified: dict[tuple[str, str], tuple[str, int]] = {}

    def instance(self, instance_id: InstanceId) -> str:
        """Return the instance token (docs/sidecar-contract.md): for claim, reset, end, state; signs webhooks."""
        return tokens.instance_token(self._key, instance_id)

    def webhook_sender(self, instance_id: InstanceId) -> str:
        """Return the credential that a sidecar sends with a webhook, checked before the body is read."""
        return hmac.digest(self.instance(instance_id).encode(), WEBHOOK_SENDER, hashlib.sha256).hex()

    def sandbox(self, instance_id: InstanceId, generation: int, sandbox_id: SandboxId) -> str:
        """Return the sandbox token for one claim; each generation has another one."""
        mac = self._mac(b"sandbox", instance_id.encode(), b"%d" % generation, sandbox_id.encode())
        return "sst_" + encode(mac)

    def peer(self) -> str:
        """Return the token with which gateways authenticate to each other."""
        return "spt_" + encode(self._mac(b"peer"))

    def is_peer(self, token: str) -> bool:
        """Return whether this is the token of gateways."""
        return token.isascii() and hmac.compare_digest(token, self.peer())

    def ssh_host_key(self) -> bytes:
        """Return the seed of the Ed25519 host key, which stays the same after a restart."""
        return self._mac(b"ssh host key")

    def pending_key(self) -> bytes:
        """Return the 32-byte key that encrypts pending creates on a gateway's disk."""
        return self._mac(b"pending creates")

    def exposure(self, nonce: str) -> str:
        """Return the id of an exposure, 144 bits of which only the gateways can derive from its nonce."""
        return nonce + encode(self._mac(b"exposure", nonce.encode())[:18])

    def is_exposure(self, text: str) -> bool:
        """Return whether a gateway generated this id."""
        return text.isascii() and hmac.compare_digest(text, self.exposure(text[: self.NONCE]))

    def ssh_session(self, nonce: str) -> str:
        """Return the id of an SSH session, 96 bits of which only the gateways can derive from its nonce."""
        return f"ssh-{nonce}{self._mac(b'ssh session', nonce.encode())[:12].hex()}"

    def ssh_nonce(self, session_id: str) -> str | None:
        """Return the nonce of this id, or None if no gateway generated it."""
        nonce = session_id[4 : 4 + self.NONCE]
        made = session_id.isascii() and hmac.compare_digest(session_id, self.ssh_session(nonce))
        return nonce if made else None

    def fingerprint(self, secret: str) -> str:
        """Return what names an API key, or an id that is a credential, where the secret itself must not stand.

        By a key, since a plain hash would let a reader try guesses of a short secret.
        """
        return self._mac(b"fingerprint", secret.encode("utf-8", "backslashreplace"))[:8].hex()

    def client(self, sandbox_id: SandboxId, tenant: str, expires_at: int) -> str:
        """Return a client token for one sandbox, valid until `expires_at` (on the clock of `now`)."""
        claims = b"%d:%b" % (expires_at, tenant.encode())
        return f"sct_{encode(claims)}.{encode(self._mac(b'client', sandbox_id.encode(), claims))}"

    def check_client(self, token: str, sandbox_id: SandboxId) -> str | None:
        """Return the token's tenant, or None if it is forged, expired or for another sandbox."""
        known = self._verified.get((token, sandbox_id))
        if known is None:
            known = self._verify(token, sandbox_id)
            if known is None:
                return None
            if len(self._verified) >= _CACHED:
                del self._verified[next(iter(self._verified))]
            self._verified[token, sandbox_id] = known
        tenant, expires_at = known
        return tenant if self.now() < expires_at else None

    def _verify(self, token: str, sandbox_id: SandboxId) -> tuple[str, int] | None:
        if not token.startswith("sct_") or not token.isascii() or len(token) > 1024:
            return None
        claims_text, _, mac_text = token[4:].partition(".")
        try:
            claims = _bytes(claims_text)
            mac = _bytes(mac_text)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(mac, self._mac(b"client", sandbox_id.encode(), claims)):
            return None
        # Another encoding of the same bytes (other trailing bits) must not be a second valid token.
        if encode(claims) != claims_text or encode(mac) != mac_text:
            return None
        expires_at, _, tenant = claims.partition(b":")
        return tenant.decode(), int(expires_at)

    def _mac(self, *parts: bytes) -> bytes:
        return tokens.mac(self._key, *parts)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
