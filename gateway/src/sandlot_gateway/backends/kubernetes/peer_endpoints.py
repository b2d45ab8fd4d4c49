"""Reads the gateways' addresses from their Service's EndpointSlices, for the time when DNS does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

from ...data.dial import split_host_port

_TIMEOUT = 2.0


class _Endpoint(msgspec.Struct):
    addresses: list[str] = []


class _Slice(msgspec.Struct):
    endpoints: list[_Endpoint] | None = None


class _Slices(msgspec.Struct):
    items: list[_Slice] = []


def endpoints_of(name: str, *, client: KubeClient) -> Callable[[], Awaitable[list[str]]] | None:
    """Return what reads the addresses behind a Service's `HOST:PORT`, or None if the host names no Service.

    It raises OSError if the API server does not tell them.
    """
    host, port = split_host_port(name)
    if (service := paths.service_of(host)) is None:
        return None
    namespace, service_name = service

    async def read() -> list[str]:
        params = {"labelSelector": f"kubernetes.io/service-name={service_name}"}
        try:
            found = msgspec.json.decode(
                await client.request(
                    "GET", paths.endpoint_slices(namespace), params=params, timeout=_TIMEOUT
                ),
                type=_Slices,
            )
        except (KubeError, msgspec.DecodeError) as error:
            raise OSError(f"the EndpointSlices of {service_name} cannot be read: {error}") from error
        hosts = [
            host for piece in found.items for endpoint in piece.endpoints or [] for host in endpoint.addresses
        ]
        if not hosts:
            raise OSError(f"the EndpointSlices of {service_name} have no address")
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in dict.fromkeys(hosts)]

    return read
