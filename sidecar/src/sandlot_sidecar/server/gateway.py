"""The gateway as a sidecar reaches it: its address, encryption, and what each shows the other to be known."""

from __future__ import annotations

import asyncio

from sandlot_contract.headers import INSTANCE, SENDER
from sandlot_contract.sidecar import WEBHOOK_ANSWER, WEBHOOK_SENDER, WEBHOOK_SIGNATURE

from ..core.errors import SidecarError
from . import hmac256, lookup, mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..config import Config
    from .tls import Tls

ATTEMPT_TIMEOUT = 5.0


class GatewayError(SidecarError):
    """One attempt to reach the gateway failed."""


class Target:
    """Target of calls: `http://host:port/path`, `https://…` or `unix:/socket:/path`."""

    __slots__ = ("encrypted", "host", "path", "port", "socket")

    def __init__(self, url: str) -> None:
        self.socket: str | None = None
        self.host, self.port = "", 80
        self.encrypted = url.startswith("https://")
        if url.startswith("unix:"):
            self.socket, separator, path = url[5:].partition(":/")
            if not separator or not self.socket.startswith("/"):
                raise GatewayError("`webhook` must be unix:/socket:/path for a Unix socket")
            self.path = "/" + path
            self.host = "sandlot"
            return
        if not url.startswith(("http://", "https://")):
            raise GatewayError("`webhook` must be http://host:port/path, https://… or unix:/socket:/path")
        authority, _, path = url.partition("://")[2].partition("/")
        self.path = "/" + path
        host, separator, port = authority.rpartition(":")
        if separator and port.isdigit():
            self.host, self.port = host.strip("[]"), int(port)
        else:
            self.host = authority.strip("[]")


class Gateway:
    """Opens connections to the gateway of one instance."""

    def __init__(
        self, url: str, *, instance_id: str, token: str, address: str | None = None, tls: Tls | None = None
    ) -> None:
        """`address`: of the URL's host, as far as it is known; the name is looked up only if this fails."""
        self.target = Target(url)
        self._tls = tls if self.target.encrypted else None
        if self.target.encrypted and tls is None:
            raise GatewayError("`webhook` is https://…, and there is no `tls`: set both, or neither")
        key = token.encode()
        self.identity = {INSTANCE: instance_id, SENDER: hmac256.hexdigest(key, WEBHOOK_SENDER)}
        self._key = key
        self.proof = hmac256.hexdigest(key, WEBHOOK_ANSWER)  # what an answer has that is a gateway's
        self._address = address  # cached, since a lookup costs more than a webhook
        self._moved = address is None  # look up again before the next attempt
        self._lookup: asyncio.Task[None] | None = None

    @property
    def must_look_up(self) -> bool:
        """Whether the next attempt needs a lookup first."""
        return self.target.socket is None and self._moved

    def signature(self, message: bytes) -> str:
        """Return what shows the gateway that this instance's sidecar has sent it."""
        return WEBHOOK_SIGNATURE + hmac256.hexdigest(self._key, message)

    async def look_up(self) -> None:
        """Look up the address; on failure (a policy may block lookups) keep the last one, or raise GatewayError.

        All that wait share one lookup: each takes a thread.
        """
        if self._lookup is None or self._lookup.done():
            self._lookup = asyncio.get_running_loop().create_task(self._look_up())
            self._lookup.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._lookup)

    async def _look_up(self) -> None:
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT):
                self._address = (await lookup.addresses(self.target.host))[0]
        except (OSError, TimeoutError, ValueError) as error:
            if self._address is None:
                raise GatewayError(f"{type(error).__name__}: {error}") from error
            return
        self._moved = False

    def reached(self) -> None:
        """Note that the address is the gateway's: a lookup takes seconds where a policy drops it."""
        self._moved = False

    def unreachable(self) -> None:
        """Note that an attempt failed: a Service that was created anew has another address."""
        self._moved = True

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection. Raises OSError and ValueError, which `failure` makes readable."""
        target = self.target
        if target.socket is not None:
            return await asyncio.open_unix_connection(target.socket)
        sock = await mark.connect(self._address or "", target.port)
        return await (asyncio.open_connection(sock=sock) if self._tls is None else self._tls.open(sock))

    def failure(self, error: Exception) -> GatewayError:
        """Return what an error of a connection means."""
        reason = None if self._tls is None else self._tls.reason_of(error)
        return GatewayError(reason or f"{type(error).__name__}: {error}")


def of(config: Config, tls: Tls | None) -> Gateway | None:
    """Return the gateway of a config, or None if it has none. Raises GatewayError."""
    if not config.webhook:
        return None
    return Gateway(
        config.webhook,
        instance_id=config.instance_id,
        token=config.token,
        address=config.webhook_address,
        tls=tls,
    )
