"""Clients of servers without TLS: by itself httpx reads all authorities' certificates for each, 30 ms of a core."""

from __future__ import annotations

from typing import Any

import httpx

# httpx by itself gives up after 5 s, for which a busy machine may stand still.
_PATIENT: dict[str, Any] = {"timeout": 60}


def client(**options: Any) -> httpx.Client:
    return httpx.Client(verify=False, **{**_PATIENT, **options})


def async_client(**options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=False, **{**_PATIENT, **options})


def request(method: str, url: str, **options: Any) -> httpx.Response:
    return httpx.request(method, url, verify=False, **{**_PATIENT, **options})


def get(url: str, **options: Any) -> httpx.Response:
    return request("GET", url, **options)


def post(url: str, **options: Any) -> httpx.Response:
    return request("POST", url, **options)


def put(url: str, **options: Any) -> httpx.Response:
    return request("PUT", url, **options)


def delete(url: str, **options: Any) -> httpx.Response:
    return request("DELETE", url, **options)
