"""Paths of the API server's collections and objects."""

from __future__ import annotations

from sandlot_contract.names import GROUP, POOL_PLURAL, SANDBOX_PLURAL, VERSION, WARMUP_PLURAL


def pods(namespace: str, name: str | None = None) -> str:
    return _path(f"/api/v1/namespaces/{namespace}/pods", name)


def config_maps(namespace: str, name: str | None = None) -> str:
    return _path(f"/api/v1/namespaces/{namespace}/configmaps", name)


def secrets(namespace: str, name: str) -> str:
    return _path(f"/api/v1/namespaces/{namespace}/secrets", name)


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


def _path(collection: str, name: str | None) -> str:
    return collection if name is None else f"{collection}/{name}"
