"""Who calls: the tenant of an API key, and the sandbox of an envd access token or of a signed URL."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from sandlot_contract.ids import SandboxId, created_at

from sandlot_gateway.data.answers import Scope
from sandlot_gateway.keys import Keys, Tenant, plain_key
from sandlot_gateway.tokens import Tokens

from .allowance import Allowance
from .failures import EnvdFailure, Problem
from .file_query import FileQuery
from .paths import ENVD_PORT, PORT_KEY, SANDBOX_KEY
from .serving import Serving

# Seconds from a sandbox's creation: its end is what ends its token. The time is fixed, so that every gateway derives
# the same token, with which a signed URL is checked.
_VALID = 10 * 366 * 86400
# Tokens derived of all tenants for signatures of unknown sandboxes, which anyone can send: a tenth of a core at most.
_UNKNOWN_PER_SECOND = 5000.0
_SIGNER = "sandlot.e2b_signer"  # in a request's scope: asked for its body, then for its answer


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's sandbox and its owner, both authenticated."""

    sandbox_id: SandboxId
    tenant: str
    user: str | None = None  # that the request acts as in the sandbox
    by_traffic_token: bool = False  # which users of its apps may have


class Access:
    def __init__(
        self, *, keys: Keys, tokens: Tokens, serving: Serving, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._serving = serving
        self._unknown = Allowance(_UNKNOWN_PER_SECOND, clock=clock)

    def tenant(self, scope: Scope) -> Tenant:
        """Return the tenant of the request's API key. Raises Problem."""
        key = _header(scope, b"x-api-key").decode("latin-1")
        found = self._keys.find(plain_key(key, self._keys))
        if found is None:
            raise Problem(401, "the API key is missing or unknown: set E2B_API_KEY to a key of this gateway")
        return found

    def token(self, sandbox_id: SandboxId, tenant: str) -> str:
        """Return the envd access token of a sandbox."""
        return self._token(sandbox_id, tenant, self._tokens.signing_id)

    def tokens(self, sandbox_id: SandboxId, tenant: str) -> tuple[str, str]:
        """Return a sandbox's envd access token, and the one of its apps, which may be given to their users."""
        apps = self._tokens.traffic(sandbox_id, tenant, _end(sandbox_id), self._tokens.signing_id)
        return self.token(sandbox_id, tenant), apps

    def caller(
        self,
        scope: Scope,
        *,
        query: FileQuery | None = None,
        operation: str | None = None,
        port: bytes = ENVD_PORT,
        traffic: bool = False,
    ) -> Caller:
        """Return whom a request to a sandbox's `port` is of. Raises EnvdFailure.

        `query`: that of a file call, which decides the user; `operation`: what its signature may allow; `traffic`: whether
        the token of apps is enough.
        """
        sandbox_id = SandboxId(_header(scope, SANDBOX_KEY).decode("latin-1"))
        if created_at(sandbox_id) is None:
            raise EnvdFailure(
                "unauthenticated",
                "no sandbox is named: send E2b-Sandbox-Id, or use the host PORT-SANDBOX.DOMAIN",
            )
        token = _header(scope, b"x-access-token").decode("latin-1")
        tenant = self._tokens.check_client(token, sandbox_id) if token else None
        by_traffic_token = False
        if not token and traffic:
            token = _header(scope, b"e2b-traffic-access-token").decode("latin-1")
            tenant = self._tokens.check_client(token, sandbox_id)
            if tenant is None:
                tenant, by_traffic_token = self._tokens.check_traffic(token, sandbox_id), True
        if tenant is None and not token and query is not None and operation is not None:
            if _SIGNER not in scope:
                scope[_SIGNER] = self._signer(query, sandbox_id, operation=operation)
            tenant = scope[_SIGNER]
        if tenant is None:
            raise EnvdFailure(
                "unauthenticated",
                "the access token is missing, wrong or of another sandbox: connect to the sandbox again",
            )
        asked = _header(scope, PORT_KEY)
        if asked not in (b"", port):
            # Behind the credential: the answer says that the sandbox may exist.
            text = f"port is not open here: {asked.decode('latin-1')}; this is served at {port.decode()}"
            raise EnvdFailure("unavailable", text)
        user = _user(scope) if query is None else query.user or None
        return Caller(sandbox_id, tenant, user, by_traffic_token)

    async def served(self, caller: Caller) -> Caller:
        """Return the caller with the sandbox that serves it now: another one after a pause."""
        found = await self._serving.find(caller.sandbox_id, caller.tenant)
        return caller if found is None else replace(caller, sandbox_id=found.id)

    def _token(self, sandbox_id: SandboxId, tenant: str, key_id: str) -> str:
        return self._tokens.client(sandbox_id, tenant, _end(sandbox_id), key_id)

    def _signer(self, query: FileQuery, sandbox_id: SandboxId, *, operation: str) -> str | None:
        """Return the tenant whose token signed the URL; None if none did, or the signature has expired.

        Raises EnvdFailure while too many are checked of which each tenant may be the signer.
        """
        if not query.signature:
            return None
        expires_at = query.expires_at
        if expires_at is not None and expires_at <= self._tokens.now():
            return None
        owner = self._serving.owner(sandbox_id)
        # Another gateway may have just created an unknown one.
        tenants = self._keys.tenants() if owner is None else [owner]
        if owner is None and not self._unknown.take(len(tenants) * len(self._tokens.keys)):
            text = (
                "too many signatures for unknown sandboxes came at once: try again, or send the access token"
            )
            raise EnvdFailure("resource_exhausted", text)
        for tenant, key_id in itertools.product(tenants, self._tokens.keys):
            signing = self._token(sandbox_id, tenant, key_id)
            made = signature(query.path, operation, query.user, signing, expiration=query.expiration)
            if hmac.compare_digest(made.encode(), query.signature.encode("utf-8", "replace")):
                return tenant
        return None


def signature(path: str, operation: str, user: str, token: str, *, expiration: str = "") -> str:
    """Return E2B's signature, version 1, of a file URL."""
    text = ":".join((path, operation, user, token, *([expiration] if expiration else [])))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return "v1_" + base64.b64encode(digest).rstrip(b"=").decode()


def _end(sandbox_id: SandboxId) -> int:
    return int(created_at(sandbox_id) or 0) + _VALID


def _user(scope: Scope) -> str | None:
    """Return the user of a Basic header, which has no password. Raises EnvdFailure."""
    scheme, _, value = _header(scope, b"authorization").partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        name = base64.b64decode(value.strip(), validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError) as error:
        raise EnvdFailure("unauthenticated", f"authorization: Basic needs a user: {error}") from error
    return name or None


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")
