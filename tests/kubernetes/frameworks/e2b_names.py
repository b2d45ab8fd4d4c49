"""What a cluster has besides the gateway for E2B's SDKs: a wildcard DNS record, and HTTPS at port 443 of an address of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.cable import running
from tests.certificates import Certificate
from tests.frameworks.e2b_installation import NAMES, Installation, free
from tests.frameworks.harbor_tasks import ALLOWED
from tests.kubernetes.frameworks.tools_image import IMAGE
from tests.kubernetes.stack import Stack
from tests.ports import address

# Its arguments: an address whose port 443 is forwarded, and the host and port to which.
_FORWARD = """
import asyncio, sys
here, host, port = sys.argv[1:]
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data); await writer.drain()
    except OSError: pass
    finally: writer.close()
async def connected(reader, writer):
    try: to = await asyncio.open_connection(host, int(port))
    except OSError: writer.close(); return
    await asyncio.gather(copy(reader, to[1]), copy(to[0], writer))
async def main():
    async with await asyncio.start_server(connected, here, 443) as server:
        print("up", flush=True); await server.serve_forever()
asyncio.run(main())
"""


@contextmanager
def named(stack: Stack, certificate: Certificate) -> Iterator[Installation]:
    """A release with a domain of E2B's and this certificate, as an installation. Needs root, as clients run in it."""
    here, gateway = address(0), urlsplit(stack.tls_url)
    with (
        free(here, 443),
        running(NAMES, here),
        running(_FORWARD, here, str(gateway.hostname), str(gateway.port)),
    ):
        yield Installation(
            address=here,
            api_key=stack.api_key,
            image=IMAGE.reference,
            peer=ALLOWED,
            certificate=certificate,
            log=stack.report,
            seconds=800,  # its sandboxes may be cold starts, one after the other
        )
