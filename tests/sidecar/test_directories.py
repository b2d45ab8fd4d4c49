"""Directories over the real surface: listed in pages, made, moved and removed."""

from __future__ import annotations

import os
from urllib.parse import quote

import pytest

from tests.sidecar.calls import put
from tests.sidecar.support import Sidecar

pytestmark = pytest.mark.root


async def test_list_in_pages(box: Sidecar) -> None:
    await box.exec("mkdir /d; cd /d; touch c a b; mkdir e; ln -s /nowhere f")
    listing = (await box.call("GET", "/v1/files/list?path=/d&limit=3")).json()
    assert [entry["path"] for entry in listing["entries"]] == ["/d/a", "/d/b", "/d/c"]
    rest = (
        await box.call("GET", "/v1/files/list", params={"path": "/d", "cursor": listing["cursor"]})
    ).json()
    assert [(entry["path"], entry["type"]) for entry in rest["entries"]] == [
        ("/d/e", "dir"),
        ("/d/f", "symlink"),
    ]
    assert rest["entries"][1]["target"] == "/nowhere"
    assert rest["cursor"] is None


async def test_a_directory_of_long_names_and_targets_is_listed_in_pages(box: Sidecar) -> None:
    make = "import os\nos.mkdir(b'/d')\nfor i in range(500): os.symlink(b't' * 4000, b'/d/\\xff%04d' % i + b'\\xff' * 200)"
    assert (await box.exec(["python3", "-c", make]))["exit_code"] == 0
    names: list[str] = []
    cursor = pages = 0
    while cursor is not None:
        query = "" if not pages else "&cursor=" + quote(os.fsencode(str(cursor)))
        listing = (await box.call("GET", f"/v1/files/list?path=/d{query}")).json()
        names += [entry["path"][4:8] for entry in listing["entries"]]
        cursor = listing["cursor"]
        pages += 1
    assert names == [f"{number:04}" for number in range(500)]
    assert pages == 3


async def test_make_move_chmod_delete(box: Sidecar) -> None:
    made = await box.call("POST", "/v1/files/mkdir", json={"path": "/m/n", "mode": "0700", "owner": "nobody"})
    assert (made.json()["mode"], made.json()["uid"]) == ("0700", 65534)
    await put(box, "/m/n/x", b"x")
    await put(box, "/m/n/y", b"y")
    taken = await box.call(
        "POST", "/v1/files/move", json={"source": "/m/n/x", "target": "/m/n/y", "overwrite": False}
    )
    assert (taken.status_code, taken.json()["error"]) == (409, "exists")
    assert (
        await box.call("POST", "/v1/files/move", json={"source": "/m/n/x", "target": "/m/n/y"})
    ).status_code == 200
    assert (await box.call("GET", "/v1/files?path=/m/n/y")).content == b"x"
    changed = await box.call(
        "POST", "/v1/files/chmod", json={"path": "/m/n/y", "mode": "0600", "owner": 5, "group": 6}
    )
    assert (changed.json()["mode"], changed.json()["uid"], changed.json()["gid"]) == ("0600", 5, 6)
    full = await box.call("DELETE", "/v1/files?path=/m")
    assert (full.status_code, full.json()["error"]) == (409, "not_empty")
    assert (await box.call("DELETE", "/v1/files?path=/m&recursive=1")).status_code == 200
    assert (await box.call("DELETE", "/v1/files?path=/m")).status_code == 404
