"""Image warm-ups of private images: each tenant's are pulled with its own credentials, or have a clear error."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from sandlot_node.failures import ImageError, Kind

from tests.controller.test_warmups import Warm, warm

__all__ = ["warm"]

pytestmark = pytest.mark.programs

SECRET = "registry.example/secret:1"
PASSWORD = "open sesame"


def private(warm: Warm, *passwords: str) -> None:
    """Have the registry give the image to nobody, nor to these."""
    for engine in warm.engines.values():
        for password in (None, *passwords):
            engine.refuse[SECRET, password] = ImageError(Kind.UNAUTHORIZED, "the registry refused it")


def credentials(directory: Path, **passwords: str) -> Path:
    """Return a directory with the credentials of tenants."""
    found = directory / "credentials"
    found.mkdir()
    for tenant, password in passwords.items():
        entry = {"username": tenant, "password": password}
        (found / f"{tenant}.json").write_text(json.dumps({"auths": {"registry.example": entry}}))
    return found


async def test_a_private_image_is_pulled_with_its_tenants_credentials(
    warm: Warm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    private(warm)
    async with warm.controlled(registry_credentials=credentials(tmp_path, alpha=PASSWORD)):
        await warm.begin({SECRET: 1, "python:3.12": 1})
        status = await warm.done()
    assert (status["ready"], status.get("errors", [])) == (2, [])
    auths = {name: auth for engine in warm.engines.values() for name, auth in engine.pulls}
    assert auths["python:3.12"] is None
    secret = auths[SECRET]
    assert secret is not None
    assert (secret.username, secret.password) == ("alpha", PASSWORD)
    assert PASSWORD not in caplog.text


async def test_without_credentials_the_error_says_what_is_missing(warm: Warm, tmp_path: Path) -> None:
    private(warm)
    async with warm.controlled(registry_credentials=credentials(tmp_path, beta=PASSWORD)):
        await warm.begin({SECRET: 1, "python:3.12": 1})
        status = await warm.done()
    assert (status["ready"], status["failed"]) == (1, 1)
    [error] = status["errors"]
    assert error["message"] == (
        f"image {SECRET} needs credentials: tenant 'alpha' has none for registry.example. Add them to alpha.json in the "
        "Secret that gateway.registryCredentialsSecret names, and create the warm-up again. the registry refused it"
    )
    assert warm.pulls(SECRET) == 1


async def test_wrong_credentials_have_the_agents_text(warm: Warm, tmp_path: Path) -> None:
    private(warm, "wrong")
    async with warm.controlled(registry_credentials=credentials(tmp_path, alpha="wrong")):
        await warm.begin({SECRET: 1})
        status = await warm.done()
    assert [error["message"] for error in status["errors"]] == ["the registry refused it"]


async def test_a_tenant_without_a_right_takes_nothing_from_one_that_has_it(
    warm: Warm, tmp_path: Path
) -> None:
    private(warm)
    async with warm.controlled(registry_credentials=credentials(tmp_path, beta=PASSWORD)):
        await warm.begin({SECRET: 1}, name="w-alpha", tenant="alpha")
        assert (await warm.done("w-alpha"))["failed"] == 1
        await warm.begin({SECRET: 1}, name="w-beta", tenant="beta")
        status = await warm.done("w-beta")
    assert (status["ready"], status["copiesReady"], status.get("errors", [])) == (1, 3, [])
