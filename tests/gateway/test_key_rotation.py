"""The API keys file is followed while the gateway runs: new keys open, removed ones do not, and no request is lost."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from tests import plain_http
from tests.gateway.conftest import Running, running
from tests.gateway.machine import Machine
from tests.waiting import until

FILED = {"api_keys": None}


async def status(box: Running, key: str) -> int:
    answer = await box.client.get("/api/v1/user/whoami", headers=box.as_tenant(key))
    return answer.status_code


async def becomes(box: Running, key: str, wanted: int) -> None:
    async def it_is() -> bool:
        return await status(box, key) == wanted

    await until(it_is)


async def said(caplog: pytest.LogCaptureFixture, text: str) -> str:
    return await until(
        lambda: next((each.getMessage() for each in caplog.records if text in each.getMessage()), "")
    )


class MountedSecret:
    """As a kubelet mounts a Secret: the file leads by `..data` into a directory, and an update swaps that link."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "api-key"
        self._directory = directory
        self._version = 0
        self.file.symlink_to("..data/api-key")

    def write(self, text: str) -> None:
        self._version += 1
        content = self._directory / f"..version_{self._version}"
        content.mkdir()
        (content / "api-key").write_text(text)
        link = self._directory / "..data_tmp"
        link.symlink_to(content.name)
        link.replace(self._directory / "..data")


async def use(box: Running, sandbox_id: str, key: str, *, stop: asyncio.Event) -> list[int]:
    """The status of each request to both APIs, one after another on one connection."""
    seen: list[int] = []
    async with plain_http.async_client(base_url=box.url, headers=box.as_tenant(key), timeout=30) as client:
        while not stop.is_set():
            answers = [
                await client.get(f"/api/v1/sandbox/{sandbox_id}"),
                await client.post(f"/sbx/{sandbox_id}/exec", json={"command": "x"}),
            ]
            seen += [answer.status_code for answer in answers]
    return seen


async def test_keys_move_over_without_a_lost_request(
    state_dir: Path, machine: Machine, tmp_path: Path
) -> None:
    secret = MountedSecret(tmp_path)
    secret.write("old:alpha\n")
    async with running(state_dir, machine, api_keys_file=secret.file, **FILED) as box:
        as_old = {"headers": box.as_tenant("old")}
        answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host"}, **as_old)
        sandbox_id = answer.json()["id"]
        assert await status(box, "new") == 401
        moved, done = asyncio.Event(), asyncio.Event()
        with_old = asyncio.create_task(use(box, sandbox_id, "old", stop=moved))
        secret.write("old:alpha\nnew:alpha\n")
        await becomes(box, "new", 200)
        with_new = asyncio.create_task(use(box, sandbox_id, "new", stop=done))
        moved.set()
        assert set(await with_old) == {200}
        secret.write("new:alpha\n")
        await becomes(box, "old", 401)
        refused = await box.client.post(f"/sbx/{sandbox_id}/exec", json={"command": "x"}, **as_old)
        assert refused.status_code == 401
        done.set()
        assert set(await with_new) == {200}
        # What clients of this machine read follows.
        endpoint = json.loads((state_dir / "endpoint.json").read_text())
        assert endpoint["api_key"] == "new"


async def test_a_file_that_is_written_in_place_is_followed(
    state_dir: Path, machine: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("one:alpha\n")
    async with running(state_dir, machine, api_keys_file=file) as box:
        file.write_text("two:alpha\n")
        await becomes(box, "two", 200)
        assert await status(box, "one") == 401
        # A key of the settings stays, whatever the file says.
        file.write_text("")
        await becomes(box, "two", 401)
        assert await status(box, "key-a") == 200


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("new:alpha\nbad key:alpha\n", "entry 2"),
        ("new:alpha:many\n", "entry 1"),
        ("# none is left\n", "no key"),
        (b"new\xff:alpha\n", "UTF-8"),
        (None, "No such file"),
    ],
)
async def test_an_invalid_file_changes_nothing_and_is_said(
    state_dir: Path,
    machine: Machine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    text: str | bytes | None,
    why: str,
) -> None:
    file = tmp_path / "keys"
    file.write_text("old:alpha\n")
    caplog.set_level(logging.INFO)
    async with running(state_dir, machine, api_keys_file=file, **FILED) as box:
        if text is None:
            file.unlink()
        else:
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        message = await said(caplog, "the earlier keys stay valid")
        assert why in message
        assert "new" not in message.replace(str(file), "")
        assert (await status(box, "old"), await status(box, "new")) == (200, 401)
        assert 'sandlot_reload_failing{file="api_keys"} 1.0' in box.gateway.gauges.text().decode()
        file.write_text("new:alpha\n")
        await becomes(box, "new", 200)
        assert await status(box, "old") == 401
        assert 'sandlot_reload_failing{file="api_keys"} 0.0' in box.gateway.gauges.text().decode()
        errors = [r for r in caplog.records if "the earlier keys stay valid" in r.getMessage()]
        assert len(errors) == 1
