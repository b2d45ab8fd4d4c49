"""What a sandbox may reach, which only the real stack holds."""

from __future__ import annotations

import pytest
from sandlot import AsyncClient, AsyncSandbox, BadRequest

from tests.policies import skip_without_egress_policies
from tests.stack import Stack

pytestmark = pytest.mark.root


async def test_what_it_may_reach(stack: Stack) -> None:
    skip_without_egress_policies()
    reach = ["python3", "-c", "import socket; socket.create_connection(('192.0.2.1', 9), timeout=0.2)"]
    async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
        box = await AsyncSandbox.create(client=client, allow=["Example.org", "10.0.0.1:443"])
        policy = await box.get_network()
        assert (policy.allow, policy.deny) == (("example.org", "10.0.0.1/32:443"), None)
        assert "PermissionError" in (await box.exec(reach)).stderr
        changed = await box.set_network(deny=["192.0.2.0/24:80"])
        assert (changed.allow, changed.deny) == (None, ("192.0.2.0/24:80",))
        assert changed.generation == policy.generation + 1
        assert "PermissionError" not in (await box.exec(reach)).stderr
        with pytest.raises(BadRequest, match="ports must be 1 to 65535"):
            await box.set_network(allow=["10.0.0.1:0"])
        with pytest.raises(ValueError, match="either allow or deny"):
            await box.set_network()
        with pytest.raises(ValueError, match="allow: must be a list"):
            await box.set_network(allow="example.org")
        await box.delete()
