"""A certificate of an authority that only this test run knows, and a client that trusts it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx
import trustme


@dataclass
class Certificate:
    """Its files, and that of its authority."""

    chain: Path
    key: Path
    authority: Path

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        return context

    def client(self, url: str, *, api_key: str, http2: bool) -> httpx.AsyncClient:
        trust = ssl.create_default_context(cafile=str(self.authority))
        headers = {"Authorization": f"Bearer {api_key}"}
        return httpx.AsyncClient(
            http1=not http2, http2=http2, verify=trust, base_url=url, headers=headers, timeout=60
        )


def issued(directory: Path, *hosts: str, authority: trustme.CA | None = None) -> Certificate:
    authority = authority or trustme.CA()
    made = Certificate(directory / "cert.pem", directory / "key.pem", directory / "authority.pem")
    certificate = authority.issue_cert(*hosts)
    certificate.private_key_pem.write_to_path(str(made.key))
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(made.chain), append=True)
    authority.cert_pem.write_to_path(str(made.authority))
    return made
