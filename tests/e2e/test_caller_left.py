"""The caller of a create leaves before its answer, and then the gateway dies: the sidecar ends the sandbox."""

from __future__ import annotations

import json
import socket

import pytest
from sandlot import Client, Sandbox

from tests.e2e import processes
from tests.stack import Stack, private_stack
from tests.stopped import resume, stop
from tests.waiting import wait_until


def test_an_unused_sandbox_ends_though_its_gateway_died() -> None:
    with (
        private_stack("--orphan-grace", "2") as stack,
        Client(url=stack.url, api_key=stack.api_key) as client,
    ):
        made = left(stack, client, set())
        wait_until(lambda: "its caller has left" in stack.log())
        stack.kill()
        stack.start()
        wait_until(lambda: verdict(client, made) == "deleted")


@pytest.mark.longest
@pytest.mark.slow
def test_one_whose_caller_comes_back_to_the_next_gateway_lives() -> None:
    """Although it does not use the sandbox yet. Another one, left later, shows that its grace is over."""
    with (
        # Longer than a start of the gateway on a loaded machine.
        private_stack("--orphan-grace", "30") as stack,
        Client(url=stack.url, api_key=stack.api_key) as client,
    ):
        known: set[int] = set()
        kept, other = left(stack, client, known), left(stack, client, known)
        wait_until(lambda: stack.log().count("its caller has left") == 2)
        stack.kill()
        stack.start()
        key = next(one.name for one in Sandbox.list(client=client) if one.id == kept)
        assert Sandbox.create("host", client=client, idempotency_key=key).id == kept
        wait_until(lambda: verdict(client, other) == "deleted")
        assert verdict(client, kept) is None


def verdict(client: Client, sandbox_id: str) -> str | None:
    [found] = [one for one in Sandbox.list(client=client, active=None) if one.id == sandbox_id]
    return found.verdict


def left(stack: Stack, client: Client, known: set[int]) -> str:
    """Send a create, and close its connection while its sidecar, none of the known ones, is stopped."""
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
            stop(pid)
            [made] = [one for one in Sandbox.list(client=client) if one.name == key]
        known.add(pid)
        try:
            if made.status == "PENDING":
                Sandbox.list(
                    client=client
                )  # the gateway has seen the end of the connection when it answers this
                return made.id
        finally:
            resume(pid)
