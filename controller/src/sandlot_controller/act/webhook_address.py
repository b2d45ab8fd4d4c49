"""Reads the address of the Service that sidecars report to, which saves each of them a DNS query."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

import msgspec
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError

from ..settings import Settings
from .retry import until_done

_log = logging.getLogger(__name__)
_HEADLESS = ("", "None")
_PATIENCE = 10.0  # seconds for an API server that is busy at a change of leaders


class _Spec(msgspec.Struct, rename="camel"):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class _Service(msgspec.Struct):
    spec: _Spec


async def with_webhook_address(settings: Settings, *, client: KubeClient) -> Settings:
    """Return the settings with the address; unchanged if they have one, or the URL's host is no Service.

    Sidecars look the name up where the address is unknown, or no longer right.
    """
    if settings.webhook_address is not None:
        return settings
    service = paths.service_of(urlsplit(settings.webhook_url).hostname or "")
    if service is None:
        return settings
    try:
        async with asyncio.timeout(_PATIENCE):
            body = await until_done(lambda: client.request("GET", paths.services(*service)))
        found = msgspec.json.decode(body, type=_Service)
    except (KubeError, TimeoutError, msgspec.DecodeError) as error:
        _log.warning(
            "cannot read the Service %s/%s, so sidecars need DNS to find the gateway: %s", *service, error
        )
        return settings
    if found.spec.cluster_ip in _HEADLESS:
        return settings
    return settings.model_copy(update={"webhook_address": found.spec.cluster_ip})
