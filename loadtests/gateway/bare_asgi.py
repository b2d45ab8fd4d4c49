"""A minimal ASGI application on an untuned uvicorn: the floor of any gateway in Python."""

from __future__ import annotations

import argparse
from typing import Any

import uvicorn

from loadtests.gateway.stub_sidecars import ANSWER_BODY

HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER_BODY))]


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, as a forwarding server must, and answer like a stub sidecar."""
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER_BODY})


class _Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=int, default=18643)
    arguments = parser.parse_args()
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=arguments.listen,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        backlog=4096,
    )
    _Server(config).run()


if __name__ == "__main__":
    main()
