"""Links of an owner: ports that a sidecar cannot have, before and after the owner's code has run."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.server.executor_client import ExecutorError
from sandlot_sidecar.server.gateway import Gateway
from sandlot_sidecar.server.links.owned import OwnedLinks

from tests.ports import free_ports
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN

ADDRESS = "127.83.7.1"  # of the service


class Executor:
    """Listens in this process's network, and has one file."""

    def __init__(self, hosts: Path) -> None:
        self.hosts = hosts

    async def ask(self, do: str, *, descriptors: int, **asked: Any) -> tuple[dict[str, Any], list[int]]:
        if do == "file":
            return {}, [os.open(self.hosts, os.O_RDWR | os.O_CREAT)]
        try:
            sockets = [socket.create_server((asked["address"], port)) for port in asked["ports"]]
        except OSError as error:
            raise ExecutorError(409, "in_use", str(error)) from error
        return {}, [one.detach() for one in sockets]


def links(hosts: Path) -> OwnedLinks:
    gateway = Gateway("http://127.0.0.1:1/x", instance_id="i-1", token=INSTANCE_TOKEN, address="127.0.0.1")
    return OwnedLinks(cast(Any, Executor(hosts)), gateway, shares_network=False, listen="0.0.0.0:8700")


def claim(*ports: int) -> dict[str, Any]:
    service = {"name": "db", "address": ADDRESS, "ports": list(ports)}
    return {"sandbox_id": "sb-1", "network": "none", "services": [service]}


def test_the_sidecars_own_port_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    links(tmp_path / "hosts").check(claim(8701))
    with pytest.raises(ApiError) as refused:
        links(tmp_path / "hosts").check(claim(5432, 8700))
    assert (refused.value.status, refused.value.field) == (400, "services")


async def test_a_port_that_the_owners_code_has_costs_only_that_port(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    busy, free = free_ports(2)
    with socket.create_server((ADDRESS, busy)):
        owned = links(hosts)
        try:
            with pytest.raises(ExecutorError):
                await owned.begin(claim(busy, free))
            notes = await owned.begin_again(claim(busy, free))
            assert len(notes) == 1
            assert notes[0].startswith(f"port {busy} of the service db is not linked: ")
            with socket.create_connection((ADDRESS, free)):
                pass
            assert hosts.read_text().startswith(f"{ADDRESS}\tdb\t")
        finally:
            owned.stop()
