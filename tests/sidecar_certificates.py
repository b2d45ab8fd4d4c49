"""Directories of the three files that gateways and sidecars have for encrypted calls."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import trustme
from sandlot_contract.sidecar import GATEWAY_NAME, SIDECAR_NAME


def write(
    directory: Path,
    authority: trustme.CA,
    *names: str,
    trusted: tuple[trustme.CA, ...] = (),
    not_after: datetime.datetime | None = None,
) -> Path:
    """Write a new certificate with these names, by default both; each file is replaced at once, as a mounted Secret is."""
    issued = authority.issue_cert(*(names or (SIDECAR_NAME, GATEWAY_NAME)), not_after=not_after)
    directory.mkdir(exist_ok=True)
    contents = {
        "ca.crt": b"".join(one.cert_pem.bytes() for one in trusted or (authority,)),
        "tls.crt": b"".join(one.bytes() for one in issued.cert_chain_pems),
        "tls.key": issued.private_key_pem.bytes(),
    }
    for name, content in contents.items():
        (directory / "new").write_bytes(content)
        os.rename(directory / "new", directory / name)
    return directory


def expired() -> datetime.datetime:
    return datetime.datetime(2020, 1, 1)
