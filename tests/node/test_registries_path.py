"""Where containerd looks for registries, as versions tell that are not among the tests' programs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from sandlot_node.containerd.client import Client
from sandlot_node.containerd.configuration import registries_path
from sandlot_node.protos import cri_pb2, introspection_pb2


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


@asynccontextmanager
async def containerd(socket: Path, config: dict[str, Any]) -> AsyncIterator[None]:
    """Answers as one whose plugins do not tell. `config`: in the status of its CRI."""

    async def plugins(request: bytes, context: object) -> introspection_pb2.PluginsResponse:
        plugin = introspection_pb2.Plugin(type="io.containerd.cri.v1", id="images")
        return introspection_pb2.PluginsResponse(plugins=[plugin])

    async def status(request: bytes, context: object) -> cri_pb2.StatusResponse:
        assert cri_pb2.StatusRequest.FromString(request).verbose
        return cri_pb2.StatusResponse(info={"config": json.dumps(config)})

    server = grpc.aio.server()
    for service, name, answer in (
        ("containerd.services.introspection.v1.Introspection", "Plugins", plugins),
        ("runtime.v1.RuntimeService", "Status", status),
    ):
        method = grpc.unary_unary_rpc_method_handler(answer, response_serializer=_serialized)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"registry": {"configPath": "/etc/containerd/certs.d"}}, "/etc/containerd/certs.d"),
        ({"registry": {"configPath": ""}}, ""),
        ({"runtimes": {}}, None),
        ({"registry": "other"}, None),
    ],
)
async def test_the_status_of_cri_tells_if_the_plugins_do_not(
    tmp_path: Path, config: dict[str, Any], path: str | None
) -> None:
    socket = tmp_path / "c.sock"
    client = Client(str(socket))
    try:
        async with containerd(socket, config):
            assert await registries_path(client) == path
        assert await registries_path(client) is None, "containerd is away"
    finally:
        await client.close()
