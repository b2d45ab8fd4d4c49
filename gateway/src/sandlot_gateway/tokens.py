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
from sandlot_contract.keyring import Keyring
from sandlot_contract.sidecar import WEBHOOK_ANSWER, WEBHOOK_SENDER, WEBHOOK_SIGNATURE
from sandlot_contract.tokens import encode

_CACHED = 20_000  # verified client tokens to cache; about 8 MB when full


class Tokens:
    """HMAC-SHA256 tokens: `sit_…` for an instance, `sst_…` for a claim of it, `sct_…` for a client, `stt_…` for the
    apps in its sandbox, `spt_…` for a peer.

    The same inputs give the same token, so a restarted gateway with the same key needs no store. While the master key
    is replaced there are several: new tokens are of the signing one, those of the others are valid, too. What outlives
    a token's maker is stored with the id of its key (`key_id`; None: the signing one), to derive the same token again.
    """

    NONCE = 16  # hexadecimal digits, from which the id of an exposure or SSH session is derived

    def __init__(self, keys: bytes | Keyring) -> None:
        """Take the keys. Raises BadKeyring for one that is too short."""
        self._keys = Keyring(keys) if isinstance(keys, bytes) else keys
        self.changed: list[Callable[[], None]] = []  # called after a change of the keys
        # Unix seconds on a clock that all gateways share: they check each other's tokens, and machines' clocks differ.
        self.now: Callable[[], float] = lambda: time.time()
        self._verified: dict[tuple[str, str], tuple[str, int]] = {}

    def use(self, keys: Keyring) -> None:
        """Replace the keys."""
        self._keys = keys
        self._verified.clear()
        for told in self.changed:
            told()

    @property
    def keys(self) -> Keyring:
        return self._keys

    @property
    def signing_id(self) -> str:
        """The id of the key that makes new tokens."""
        return self._keys.signing_id

    def instance(self, instance_id: InstanceId, key_id: str | None = None) -> str:
        """Return the instance token (docs/sidecar-contract.md): for claim, reset, end, state; signs webhooks."""
        return tokens.instance_token(self._keys.key(key_id), instance_id)

    def webhook_sender(self, instance_id: InstanceId, key_id: str | None = None) -> str:
        """Return the credential that a sidecar sends with a webhook, checked before the body is read."""
        token = self.instance(instance_id, key_id).encode()
        return hmac.digest(token, WEBHOOK_SENDER, hashlib.sha256).hex()

    def webhook_answer(self, instance_id: InstanceId, credential: str) -> str | None:
        """Return what shows the sender of this credential that a gateway answers; None if it is not the sidecar's."""
        given = credential.encode()
        for key_id in self._keys:
            if hmac.compare_digest(self.webhook_sender(instance_id, key_id).encode(), given):
                token = self.instance(instance_id, key_id).encode()
                return hmac.digest(token, WEBHOOK_ANSWER, hashlib.sha256).hex()
        return None

    def webhook_key(self, instance_id: InstanceId, signature: str, body: bytes) -> str | None:
        """Return the id of the key whose instance token signed the webhook, or None if none did."""
        given = signature.encode("utf-8", "replace")
        for key_id in self._keys:
            mac = hmac.new(self.instance(instance_id, key_id).encode(), body, hashlib.sha256)
            if hmac.compare_digest((WEBHOOK_SIGNATURE + mac.hexdigest()).encode(), given):
                return key_id
        return None

    def sandbox(
        self, instance_id: InstanceId, generation: int, sandbox_id: SandboxId, key_id: str | None = None
    ) -> str:
        """Return the sandbox token for one claim; each generation has another one. The key is the instance's."""
        parts = b"sandbox", instance_id.encode(), b"%d" % generation, sandbox_id.encode()
        return "sst_" + encode(self._mac(*parts, key_id=key_id))

    def peer(self, key_id: str | None = None) -> str:
        """Return the token with which gateways authenticate to each other."""
        return "spt_" + encode(self._mac(b"peer", key_id=key_id))

    def is_peer(self, token: str) -> bool:
        """Return whether this is the token of gateways."""
        return token.isascii() and any(hmac.compare_digest(token, self.peer(key_id)) for key_id in self._keys)

    def ssh_host_key(self) -> bytes:
        """Return the seed of the Ed25519 host key, which stays the same after a restart."""
        return self._mac(b"ssh host key")

    def pending_keys(self) -> list[bytes]:
        """Return the 32-byte keys of pending creates on a gateway's disk; the first one encrypts."""
        return [self._mac(b"pending creates", key_id=key_id) for key_id in self._keys]

    def exposure(self, nonce: str, key_id: str | None = None) -> str:
        """Return the id of an exposure, 144 bits of which only the gateways can derive from its nonce."""
        return nonce + encode(self._mac(b"exposure", nonce.encode(), key_id=key_id)[:18])

    def mcp_session(self, nonce: str, api_key: str, key_id: str | None = None) -> str:
        """Return the id of a session of MCP, which is valid with this API key alone."""
        parts = b"mcp session", nonce.encode(), hashlib.sha256(api_key.encode()).digest()
        return f"{nonce}.{encode(self._mac(*parts, key_id=key_id)[:18])}"

    def mcp_session_nonce(self, text: str, api_key: str) -> str | None:
        """Return the nonce of a session's id, or None if no gateway made it for this API key."""
        nonce, given = text.partition(".")[0], text.encode("utf-8", "replace")
        made = (self.mcp_session(nonce, api_key, key_id).encode() for key_id in self._keys)
        return nonce if any(hmac.compare_digest(one, given) for one in made) else None

    def e2b_upload(self, template: str, files_hash: str, expires_at: int, key_id: str | None = None) -> str:
        """Return the signature of an upload link for one archive of a template, valid until `expires_at`."""
        parts = b"e2b upload", template.encode(), files_hash.encode(), b"%d" % expires_at
        return encode(self._mac(*parts, key_id=key_id))

    def is_e2b_upload(self, text: str, template: str, files_hash: str, expires_at: int) -> bool:
        return (
            self._maker(text, lambda key_id: self.e2b_upload(template, files_hash, expires_at, key_id))
            is not None
        )

    def exposure_key(self, text: str) -> str | None:
        """Return the id of the key of which a gateway generated this id, or None if none did."""
        return self._maker(text, lambda key_id: self.exposure(text[: self.NONCE], key_id))

    def ssh_session(self, nonce: str, key_id: str | None = None) -> str:
        """Return the id of an SSH session, 96 bits of which only the gateways can derive from its nonce."""
        return f"ssh-{nonce}{self._mac(b'ssh session', nonce.encode(), key_id=key_id)[:12].hex()}"

    def ssh_key(self, session_id: str) -> str | None:
        """Return the id of the key of which a gateway generated this id, or None if none did."""
        nonce = self.ssh_nonce(session_id)
        return self._maker(session_id, lambda key_id: self.ssh_session(nonce, key_id))

    def ssh_nonce(self, session_id: str) -> str:
        return session_id[4 : 4 + self.NONCE]

    def _maker(self, text: str, made: Callable[[str], str]) -> str | None:
        if not text.isascii():
            return None
        return next((key_id for key_id in self._keys if hmac.compare_digest(text, made(key_id))), None)

    def fingerprint(self, secret: str) -> str:
        """Return what names an API key, or an id that is a credential, where the secret itself must not stand.

        By a key, since a plain hash would let a reader try guesses of a short secret.
        """
        return self._mac(b"fingerprint", secret.encode("utf-8", "backslashreplace"))[:8].hex()

    def client(self, sandbox_id: SandboxId, tenant: str, expires_at: int, key_id: str | None = None) -> str:
        """Return a client token for one sandbox, valid until `expires_at` (on the clock of `now`)."""
        claims = b"%d:%b" % (expires_at, tenant.encode())
        return (
            f"sct_{encode(claims)}.{encode(self._mac(b'client', sandbox_id.encode(), claims, key_id=key_id))}"
        )

    def traffic(self, sandbox_id: SandboxId, tenant: str, expires_at: int, key_id: str | None = None) -> str:
        """Return a token for the apps in one sandbox, which opens neither its commands nor its files."""
        claims = b"%d:%b" % (expires_at, tenant.encode())
        return f"stt_{encode(claims)}.{encode(self._mac(b'traffic', sandbox_id.encode(), claims, key_id=key_id))}"

    def check_client(self, token: str, sandbox_id: SandboxId) -> str | None:
        """Return the token's tenant, or None if it is forged, expired or for another sandbox."""
        return self._check(token, sandbox_id, prefix="sct_", use=b"client")

    def check_traffic(self, token: str, sandbox_id: SandboxId) -> str | None:
        """Return the tenant of a token for apps, or None if it is forged, expired or for another sandbox."""
        return self._check(token, sandbox_id, prefix="stt_", use=b"traffic")

    def _check(self, token: str, sandbox_id: SandboxId, *, prefix: str, use: bytes) -> str | None:
        if not token.startswith(prefix):
            return None
        known = self._verified.get((token, sandbox_id))
        if known is None:
            known = self._verify(token, sandbox_id, use)
            if known is None:
                return None
            if len(self._verified) >= _CACHED:
                del self._verified[next(iter(self._verified))]
            self._verified[token, sandbox_id] = known
        tenant, expires_at = known
        return tenant if self.now() < expires_at else None

    def _verify(self, token: str, sandbox_id: SandboxId, use: bytes) -> tuple[str, int] | None:
        if not token.isascii() or len(token) > 1024:
            return None
        claims_text, _, mac_text = token[4:].partition(".")
        try:
            claims = _bytes(claims_text)
            mac = _bytes(mac_text)
        except (binascii.Error, ValueError):
            return None
        parts = use, sandbox_id.encode(), claims
        if not any(hmac.compare_digest(mac, self._mac(*parts, key_id=key_id)) for key_id in self._keys):
            return None
        # Another encoding of the same bytes (other trailing bits) must not be a second valid token.
        if encode(claims) != claims_text or encode(mac) != mac_text:
            return None
        expires_at, _, tenant = claims.partition(b":")
        return tenant.decode(), int(expires_at)

    def _mac(self, *parts: bytes, key_id: str | None = None) -> bytes:
        return tokens.mac(self._keys.key(key_id), *parts)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
