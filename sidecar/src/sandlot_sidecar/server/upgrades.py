"""What requests for a connection to a port in the sandbox have in common, of TCP and UDP."""

from __future__ import annotations

from ..core.errors import bad_input
from . import fields
from .request import LINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .request import Request


def asked_port(request: Request, upgrade: str) -> int:
    """Return the port that a request for this upgrade names. Raises ApiError."""
    if request.headers.get(b"upgrade", b"").lower() != upgrade.encode():
        raise bad_input(f"send Connection: Upgrade and Upgrade: {upgrade}", field="upgrade")
    port = fields.query_int(request.query(), "port", minimum=1, maximum=65535)
    if port is None:
        raise bad_input("port is required", field="port")
    return port


def switching(upgrade: str) -> str:
    """Return the head of the answer that begins the tunnel."""
    return f"{LINES[101]}Connection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n"
