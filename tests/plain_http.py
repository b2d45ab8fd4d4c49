"""Clients of servers without TLS: by itself httpx reads all authorities' certificates for each, 30 ms of a core."""

from __future__ import annotations

from typing import Any

import httpx

SECONDS = 60.0  # of httpx's own five a loaded machine may need more for one answer


def client(**options: Any) -> httpx.Client:
    return httpx.Client(verify=False, **_patient(options))


def async_client(**options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=False, **_patient(options))


def request(method: str, url: str, **options: Any) -> httpx.Response:
    return httpx.request(method, url, verify=False, **_patient(options))


def get(url: str, **options: Any) -> httpx.Response:
    return request("GET", url, **options)


def post(url: str, **options: Any) -> httpx.Response:
    return request("POST", url, **options)


def put(url: str, **options: Any) -> httpx.Response:
    return request("PUT", url, **options)


def delete(url: str, **options: Any) -> httpx.Response:
    return request("DELETE", url, **options)


def _patient(options: dict[str, Any]) -> dict[str, Any]:
    return {"timeout": SECONDS, **options}
