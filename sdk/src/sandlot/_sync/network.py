# This file is auto-generated from sdk/src/sandlot/_async/network.py by tools/async_to_sync.py: do not change it.
"""The network of one sandbox: its egress policy and its exposed ports."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot._protocol import calls, checks, documents
from sandlot._sync.handle import Handle
from sandlot.errors import NotFound
from sandlot.models import Exposure, NetworkPolicy


class Network(Handle):
    """Sets the egress policy and exposes ports; a base class of `Sandbox`."""

    def set_network(
        self, *, allow: Sequence[str] | None = None, deny: Sequence[str] | None = None
    ) -> NetworkPolicy:
        """Set the egress policy, also for commands already running; it is in force when this returns.

        Give either `allow`, to permit only these targets (`[]`: none), or `deny`, to permit all others (`[]`: all).
        A target is a host `"packages.example.org"`, its subdomains `"*.packages.example.org"`, or an IPv4 address or
        network `"10.0.0.0/8"`, optionally with a port `":443"` or range `":8000-8100"`; a host only with 80 or 443,
        where its name can be checked. Raises Conflict, and BadRequest, also where the server cannot enforce the
        policy or the sandbox was created with `network="none"`.
        """
        body = calls.policy_document(allow=allow, deny=deny)
        path = f"/sandbox/{self.id}/egress-policy"
        document = self.client.call("PUT", path, body=body, sandbox_id=self.id)
        return documents.network_policy(document)

    def get_network(self) -> NetworkPolicy:
        """Return the egress policy."""
        path = f"/sandbox/{self.id}/egress-policy"
        return documents.network_policy(self.client.call("GET", path, sandbox_id=self.id))

    def expose(self, port: int, *, protocol: str = "http", name: str | None = None) -> str:
        """Expose a port to the outside; return its URL, or `host:port` for `protocol="tcp"` and `"udp"`."""
        checks.one_of(protocol, ("http", "tcp", "udp"), name="protocol")
        body: dict[str, object] = {"port": checks.port(port), "protocol": protocol.upper()}
        if name is not None:
            body["name"] = name
        path = f"/sandbox/{self.id}/expose"
        exposed = documents.exposure(
            self.client.call("POST", path, body=body, safe=False, sandbox_id=self.id)
        )
        return exposed.url if protocol == "http" else exposed.endpoint or exposed.url

    def exposures(self) -> list[Exposure]:
        """Return the exposed ports of this sandbox."""
        document = self.client.call("GET", f"/sandbox/{self.id}/expose", sandbox_id=self.id)
        return [documents.exposure(item) for item in document.get("exposures") or ()]

    def unexpose(self, port: int) -> None:
        """Delete all exposures of this port. Raises NotFound when there are none."""
        found = [item for item in self.exposures() if item.port == port]
        if not found:
            raise NotFound(f"port {port} of {self.id} is not exposed: call expose({port}) first", status=404)
        for item in found:
            self.client.call("DELETE", f"/sandbox/{self.id}/expose/{item.id}", sandbox_id=self.id)
