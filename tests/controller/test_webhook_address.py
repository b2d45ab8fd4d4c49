"""The address of the gateways that the controller gives to sidecars, also from an API server that fails at first."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot_controller.act.webhook_address import with_webhook_address
from sandlot_controller.settings import Settings

from tests.kube.scripted import Answer, answered, failed, scripted

SERVICE = answered(200, {"spec": {"clusterIP": "203.0.113.9"}})


@pytest.mark.parametrize(
    ("answers", "address"),
    [
        ([failed(500, "InternalError"), SERVICE], "203.0.113.9"),
        ([failed(403, "Forbidden")], None),
        ([answered(200, {"spec": {"clusterIP": "None"}})], None),
    ],
    ids=["a failed read", "no right", "a headless one"],
)
async def test_it_is_read_again_until_the_api_server_answers(
    answers: list[Answer], address: str | None
) -> None:
    settings = Settings(
        namespace="ns",
        sidecar_image="x",
        key_file=Path("/none"),
        webhook_url="http://gateway-webhooks.own.svc.cluster.local.:8641/internal/sidecar",
    )
    async with scripted() as (server, client):
        server.lists = list(answers)
        found = await with_webhook_address(settings, client=client)
        assert found.webhook_address == address
        assert {one.path for one in server.requests} == {"/api/v1/namespaces/own/services/gateway-webhooks"}
        assert not server.lists
