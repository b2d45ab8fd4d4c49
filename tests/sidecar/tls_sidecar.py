"""A sidecar that speaks TLS over loopback, with the gateway's own client and webhook listener as its other side."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import trustme
from sandlot_contract.sidecar import GATEWAY_NAME, SIDECAR_NAME
from sandlot_gateway.data.pool import HttpPool, PoolError
from sandlot_gateway.sidecar_tls import SidecarTls
from sandlot_gateway.webhook_listener import WebhookListener
from sandlot_gateway.webhooks import Answer

from tests import sidecar_certificates as certificates
from tests.ports import free_port
from tests.sidecar.support import Sidecar
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN, proof

CA = trustme.CA(key_type=trustme.KeyType.ECDSA)


class TlsSidecar(Sidecar):
    def __init__(self, directory: Path, **config: Any) -> None:
        self.files = certificates.write(directory / "sidecar", CA, SIDECAR_NAME)
        self.gateway_files = certificates.write(directory / "gateway", CA, GATEWAY_NAME)
        self.tls = SidecarTls(self.gateway_files)
        self.pool = HttpPool(tls=self.tls)
        self.port = free_port()
        self.address = f"tls:127.0.0.1:{self.port}"
        self.listener = WebhookListener(
            proof=lambda instance_id, credential: proof(),
            receive=self._receive,
            counted=lambda fault: None,
            tls=self.tls,
        )
        self.socket_of_webhooks = socket.create_server(("127.0.0.1", 0))
        port = self.socket_of_webhooks.getsockname()[1]
        super().__init__(
            listen=f"127.0.0.1:{self.port}",
            tls=str(self.files),
            webhook=f"https://gateway.test:{port}/internal/sidecar",
            webhook_address="127.0.0.1",
            **config,
        )

    def _receive(self, instance_id: str, signature: str, body: bytes) -> Answer:
        self.webhooks.events.append(json.loads(body))
        self.webhooks._changed.set()
        return Answer(200)

    async def launch(self) -> None:
        if self.listener.port is None:
            await self.listener.open([self.socket_of_webhooks])
        await super().launch()

    async def instance(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self._fetch(method, path, INSTANCE_TOKEN, **options)

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self._fetch(method, path, self.token, **options)

    async def _fetch(self, method: str, path: str, token: str, **options: Any) -> httpx.Response:
        request = httpx.Request(
            method, "http://sidecar" + path, json=options.get("json"), content=options.get("content")
        )
        headers = [("authorization", f"Bearer {token}"), ("content-type", "application/json")]
        headers += list(options.get("headers", {}).items())
        timeout = options.get("timeout", 60.0)
        try:
            found = await self.pool.fetch(
                self.address, method, path, headers=headers, body=request.read(), timeout=timeout
            )
        except PoolError as error:
            raise httpx.ConnectError(str(error)) from error
        return httpx.Response(found.status, headers=list(found.headers), content=found.body, request=request)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self.pool.close()
            await self.listener.close()
            self.socket_of_webhooks.close()
