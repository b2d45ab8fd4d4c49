"""The files of the web console: what they may do in a browser, that they need no key and hold no data, and that they can be off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sandlot_gateway

from tests import plain_http
from tests.gateway.conftest import API, Running, running

FILES = Path(sandlot_gateway.__file__).parent / "console"
NAMES = sorted(path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.is_file())


async def test_every_file_has_a_type_and_the_strict_headers(box: Running) -> None:
    async with plain_http.async_client(base_url=box.url) as client:  # without a key
        for name in ["", *NAMES]:
            answer = await client.get(f"/console/{name}")
            assert answer.status_code == 200, name
            assert answer.content == (FILES / (name or "index.html")).read_bytes()
            policy = answer.headers["content-security-policy"]
            for directive in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
                assert directive in policy.split("; ")
            assert "unsafe" not in policy
            assert "http" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cross-origin-opener-policy"] == "same-origin"
            same = await client.get(f"/console/{name}", headers={"If-None-Match": answer.headers["etag"]})
            assert (same.status_code, same.content) == (304, b"")
            head = await client.head(f"/console/{name}")
            assert (head.status_code, head.headers["etag"]) == (200, answer.headers["etag"])
        moved = await client.get("/console")
        assert (moved.status_code, moved.headers["location"]) == (307, "console/")


async def test_nothing_else_is_a_file_of_it(box: Running) -> None:
    for path in ("none.js", "..%2fcontrol/console.py", "%2e%2e/settings.py", "js", "js/", "index.html%00"):
        answer = await box.client.get(f"/console/{path}")
        assert answer.status_code == 404, path
        assert (await box.client.post("/console/", json={})).status_code == 405


async def test_it_can_be_off(state_dir, machine) -> None:
    async with running(state_dir, machine, console=False) as box:
        for path in ("/console", "/console/", "/console/js/main.js"):
            answer = await box.client.get(path)
            assert (answer.status_code, "setting console" in answer.json()["detail"]) == (404, True)


async def test_data_stays_in_no_cache(box: Running) -> None:
    made = await box.create()
    for path in ("sandbox", f"sandbox/{made['id']}", "stats", "pools", "user/whoami"):
        assert (await box.client.get(f"{API}/{path}")).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(".svg")])
def test_no_file_names_another_host_or_takes_text_for_html(name: str) -> None:
    text = (FILES / name).read_text()
    assert re.findall(r"https?://|//cdn|@import|url\(", text) == []
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|localStorage|cookie ="
    )
    assert re.findall(forbidden, text) == []
    assert re.findall(r"<script(?! type=\"module\" src=)|\son\w+=|\sstyle=", text) == []
    assert len(text.splitlines()) <= 300


async def test_the_command_line_can_switch_it_off() -> None:
    from sandlot_gateway.__main__ import arguments

    assert arguments(["--no-console"]) == {"console": False}
    assert arguments([]) == {}
