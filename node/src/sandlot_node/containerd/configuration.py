"""Asks containerd where it looks for its configuration of registries."""

from __future__ import annotations

import json
from typing import Any

from sandlot_node.failures import ImageError
from sandlot_node.protos import cri_pb2, introspection_pb2

from .client import CallFailed, Client, Missing

_SECONDS = 5.0


async def registries_path(client: Client) -> str | None:
    """Return the `config_path` of CRI's registries; None: containerd does not answer, or this version does not tell.

    2.4 has it with its plugins, 1.x in the status of its CRI, 2.1 in neither.
    """
    try:
        found = await _of_plugin(client)
        return await _of_status(client) if found is None else found
    # The last two: a configuration of another form.
    except (CallFailed, Missing, ImageError, ValueError, AttributeError):
        return None


async def _of_plugin(client: Client) -> str | None:
    request = introspection_pb2.PluginsRequest(filters=["type==io.containerd.cri.v1,id==images"])
    answer = await client.call(
        "/containerd.services.introspection.v1.Introspection/Plugins",
        request,
        introspection_pb2.PluginsResponse,
        seconds=_SECONDS,
    )
    for plugin in answer.plugins:
        if "RegistryConfigPath" in plugin.exports:
            return plugin.exports["RegistryConfigPath"]
    return None


async def _of_status(client: Client) -> str | None:
    request = cri_pb2.StatusRequest(verbose=True)
    answer = await client.call(
        "/runtime.v1.RuntimeService/Status", request, cri_pb2.StatusResponse, seconds=_SECONDS
    )
    config: Any = json.loads(answer.info["config"]) if "config" in answer.info else {}
    found: Any = config.get("registry", {}).get("configPath")
    return None if found is None else str(found)
