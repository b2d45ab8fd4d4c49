"""Paths of the API server's collections and objects."""

from __future__ import annotations

from sandlot_contract.names import GROUP, POOL_PLURAL, SANDBOX_PLURAL, VERSION, WARMUP_PLURAL


def pods(namespace: str, name: str | None = None) -> str:
    return _path(f"/api/v1/namespaces/{namespace}/pods", name)


def config_maps(namespace: str, name: str | None = None) -> str:
    return _path(f"/api/v1/namespaces/{namespace}/configmaps", name)


def secrets(namespace: str, name: str) -> str:
    return _path(f"/api/v1/namespaces/{namespace}/secrets", name)


def services(namespace: str, name: str | None = None) -> str:
    return _path(f"/api/v1/namespaces/{namespace}/services", name)


def endpoint_slices(namespace: str) -> str:
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


def nodes(name: str | None = None) -> str:
    return _path("/api/v1/nodes", name)


def sandboxes(namespace: str, name: str | None = None) -> str:
    return _path(f"{group()}/namespaces/{namespace}/{SANDBOX_PLURAL}", name)


def pools(namespace: str, name: str | None = None) -> str:
    return _path(f"{group()}/namespaces/{namespace}/{POOL_PLURAL}", name)


def warmups(namespace: str, name: str | None = None) -> str:
    return _path(f"{group()}/namespaces/{namespace}/{WARMUP_PLURAL}", name)


def group() -> str:
    """Where the API server lists our resources that it has."""
    return f"/apis/{GROUP}/{VERSION}"


def service_of(host: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service that a name in the cluster's DNS means, or None for another name."""
    labels = host.split(".")
    return (labels[1], labels[0]) if len(labels) > 2 and labels[2] == "svc" else None


def _path(collection: str, name: str | None) -> str:
    return collection if name is None else f"{collection}/{name}"
