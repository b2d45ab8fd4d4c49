"""The caller of a create leaves before its answer, and then the gateway dies: the sidecar ends the sandbox."""

from __future__ import annotations

import json
import os
import signal
import socket

from sandlot import Client, Sandbox

from tests.e2e import processes
from tests.stack import Stack, private_stack
from tests.waiting import wait_until


def test_an_unused_sandbox_ends_though_its_gateway_died() -> None:
    with (
        private_stack("--orphan-grace", "2") as stack,
        Client(url=stack.url, api_key=stack.api_key) as client,
    ):
        made = left(stack, client)
        wait_until(lambda: "its caller has left" in stack.log())
        stack.kill()
        stack.start()
        wait_until(lambda: verdict(client, made) == "deleted")


def verdict(client: Client, sandbox_id: str) -> str | None:
    [found] = [one for one in Sandbox.list(client=client, active=None) if one.id == sandbox_id]
    return found.verdict


def left(stack: Stack, client: Client) -> str:
    """Send a create, and close its connection while its sidecar is stopped."""
    known: set[int] = set()
    while True:
        key = f"k{len(known)}"
        body = json.dumps({"docker_image": "host", "name": key, "idempotency_key": key}).encode()
        head = (
            f"POST /api/v1/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.api_key}\r\n".encode()
        )
        with socket.create_connection(("127.0.0.1", stack.port)) as connection:
            connection.sendall(
                head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            [pid] = wait_until(lambda: set(processes.sidecars(stack)) - known)
            os.kill(pid, signal.SIGSTOP)
            [made] = [one for one in Sandbox.list(client=client) if one.name == key]
        try:
            if made.status == "PENDING":
                Sandbox.list(
                    client=client
                )  # the gateway has seen the end of the connection when it answers this
                return made.id
        finally:
            os.kill(pid, signal.SIGCONT)
        known.add(pid)  # it was ready before it was stopped
