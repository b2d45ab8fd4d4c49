"""Exports and restores the layer of a sidecar's sandbox, and makes archives."""

from __future__ import annotations

import io
import tarfile

import httpx

from tests.sidecar.support import Sidecar
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN

INSTANCE = {"Authorization": f"Bearer {INSTANCE_TOKEN}"}


async def export(box: Sidecar, **query: object) -> httpx.Response:
    return await box.client.post("/v1/checkpoint", params=query, headers=INSTANCE)  # type: ignore[arg-type]


async def restore(box: Sidecar, archive: bytes, **query: object) -> httpx.Response:
    return await box.client.post("/v1/restore", params=query, headers=INSTANCE, content=archive)  # type: ignore[arg-type]


async def run(box: Sidecar, command: str) -> str:
    result = await box.exec(command)
    assert result["exit_code"] == 0, result
    return result["stdout"]


def archive(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A compressed tar with exactly these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            info, data = member if isinstance(member, tuple) else (member, b"")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, *, target: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def with_records(
    records: dict[str, str], *, name: str = "x", kind: bytes = tarfile.REGTYPE
) -> tarfile.TarInfo:
    info = member(name, kind)
    info.pax_headers = records
    return info
