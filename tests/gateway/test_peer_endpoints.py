"""The addresses of a Service's pods, as the API server tells them to a gateway without DNS."""

from __future__ import annotations

import pytest
from sandlot_gateway.backends.kubernetes.peer_endpoints import endpoints_of
from sandlot_kube import paths
from sandlot_kube.client import KubeClient

from tests.kube.apiserver import ApiServer

pytestmark = pytest.mark.programs


async def test_they_are_those_of_all_its_slices(apiserver: ApiServer) -> None:
    namespace = apiserver.namespace()
    client = KubeClient(apiserver.access(namespace=namespace))
    try:
        read = endpoints_of(f"gateways.{namespace}.svc.cluster.local.:8642", client=client)
        assert read is not None
        with pytest.raises(OSError, match="no address"):
            await read()
        for name, kind, addresses in (
            ("a", "IPv4", ["10.0.0.1"]),
            ("b", "IPv4", ["10.0.0.2"]),
            ("c", "IPv6", ["fd00::1"]),
        ):
            body = {
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "gateways"}},
                "addressType": kind,
                "endpoints": [{"addresses": addresses, "conditions": {"ready": False}}],
            }
            await client.request("POST", paths.endpoint_slices(namespace), body=body)
        assert sorted(await read()) == ["10.0.0.1:8642", "10.0.0.2:8642", "[fd00::1]:8642"]
        assert endpoints_of("gateways:8642", client=client) is None
    finally:
        await client.close()
