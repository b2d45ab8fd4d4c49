"""Services of a group between pods: the same as on one machine, with a network and without, and on any node."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot import Client, Sandbox

from tests import services
from tests.kubernetes.stack import IMAGE

SIZE: dict[str, Any] = {"cpu": 1, "memory": 512 << 20, "disk": 1 << 30}


@pytest.mark.parametrize("network", ["none", "full"])
def test_names_lead_to_services_and_the_rest_is_refused(client: Client, network: str) -> None:
    with (
        services.created(client, image=IMAGE, network=network, **SIZE) as group,
        Sandbox.create(IMAGE, client=client, network=network, **SIZE) as outsider,
    ):
        services.check_that_names_lead_to_services(group)
        services.check_that_the_rest_is_refused(group, outsider)
