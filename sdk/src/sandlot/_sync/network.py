# This file is auto-generated from sdk/src/sandlot/_async/network.py by tools/async_to_sync.py: do not change it.
"""The network of one sandbox: what it may reach, and which of its ports are reachable from outside."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot._protocol import calls, checks, documents
from sandlot._sync.handle import Handle
from sandlot.errors import NotFound
from sandlot.models import Exposure, NetworkPolicy


class Network(Handle):
    """What a sandbox can reach and be reached by. `Sandbox` is one of these with a life of its own."""

    def set_network(
        self, *, allow: Sequence[str] | None = None, deny: Sequence[str] | None = None
    ) -> NetworkPolicy:
        """What it may reach from now on, also what runs in it already; it holds when this returns.

        Either `allow`, and nothing else (`[]`: nothing), or everything but `deny` (`[]`: everything). Each a host
        `"packages.example.org"`, all below one `"*.packages.example.org"`, an IPv4 address or network `"10.0.0.0/8"`, with a port or a range
        `":443"`, `":8000-8100"` behind it if need be (of a host 80 or 443, the ports where it can be held). Raises
        BadRequest, also where it cannot be held or the sandbox was created with `network="none"`, and Conflict.
        """
        body = calls.policy_document(allow=allow, deny=deny)
        path = f"/sandbox/{self.id}/egress-policy"
        document = self.client.call("PUT", path, body=body, sandbox_id=self.id)
        return documents.network_policy(document)

    def get_network(self) -> NetworkPolicy:
        """What it may reach."""
        path = f"/sandbox/{self.id}/egress-policy"
        return documents.network_policy(self.client.call("GET", path, sandbox_id=self.id))

    def expose(self, port: int, *, protocol: str = "http", name: str | None = None) -> str:
        """Makes a port reachable from outside; returns its URL, for `protocol="tcp"` a `host:port`."""
        checks.one_of(protocol, ("http", "tcp"), name="protocol")
        body: dict[str, object] = {"port": checks.port(port), "protocol": protocol.upper()}
        if name is not None:
            body["name"] = name
        path = f"/sandbox/{self.id}/expose"
        exposed = documents.exposure(
            self.client.call("POST", path, body=body, safe=False, sandbox_id=self.id)
        )
        return exposed.endpoint or exposed.url if protocol == "tcp" else exposed.url

    def exposures(self) -> list[Exposure]:
        """The ports of this sandbox that are reachable from outside."""
        document = self.client.call("GET", f"/sandbox/{self.id}/expose", sandbox_id=self.id)
        return [documents.exposure(item) for item in document.get("exposures") or ()]

    def unexpose(self, port: int) -> None:
        """Closes every way from outside to this port. Raises NotFound when there is none."""
        found = [item for item in self.exposures() if item.port == port]
        if not found:
            raise NotFound(f"port {port} of {self.id} is not exposed: call expose({port}) first", status=404)
        for item in found:
            self.client.call("DELETE", f"/sandbox/{self.id}/expose/{item.id}", sandbox_id=self.id)
