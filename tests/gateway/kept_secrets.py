"""An operator's directory of secrets, and creates that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from sandlot_gateway.backends.local.secrets import DirectorySecrets

from tests.gateway.conftest import API, Running
from tests.gateway.machine import Machine

VALUE = "value-of-the-kept-secret"
REFS = {"TOKEN": {"secret": "model-api", "key": "token"}}


class Kept:
    """The operator's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, value: str | bytes, *, tenant: str = "alpha", secret: str = "model-api") -> None:
        file = self.root / tenant / secret / "token"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value if isinstance(value, bytes) else value.encode())


@pytest.fixture
def kept(tmp_path: Path, machine: Machine) -> Kept:
    kept = Kept(tmp_path / "kept")
    kept.put(VALUE)
    machine.secrets = DirectorySecrets(kept.root)
    return kept


async def refused(box: Running, refs: Any = REFS, **fields: Any) -> httpx.Response:
    body = {"docker_image": "host", "secret_refs": refs, **fields}
    answer = await box.client.post(f"{API}/sandbox", json=body)
    assert answer.status_code >= 400, answer.text
    return answer


def claimed(machine: Machine, sandbox_id: str) -> dict[str, Any]:
    claim = machine.of_sandbox(sandbox_id).claim
    assert claim is not None
    return claim
