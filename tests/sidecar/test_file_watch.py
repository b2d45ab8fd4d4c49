"""Watches of directories: what code and uploads change, below too, and what ends a watch or loses events."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from tests.sidecar.calls import put, usable
from tests.sidecar.conftest import Make
from tests.sidecar.support import Sidecar
from tests.sidecar.watching import told, watching
from tests.waiting import until

pytestmark = pytest.mark.root

LAST = {"kind": "created", "path": "/w/last"}


async def test_events_of_a_directory(box: Sidecar) -> None:
    await box.exec("mkdir -p /w/below /elsewhere; echo x > /w/old")
    async with watching(box, "/w") as watch:
        assert watch.start == {"path": "/w", "directories": 1}
        await box.exec(
            "cd /w; echo a > new; chmod 600 new; mv new named; mv named /elsewhere; mv /elsewhere/named back;"
            " echo more >> old; rm back; mkdir d; touch below/unseen; rmdir d; : > last"
        )
        events = await watch.until(LAST)
        await put(box, "/w/up", b"content", mode="0600")
        uploaded = await watch.until({"path": "/w/up"})
    assert told(events) == [
        ("created", "/w/new"),
        ("modified", "/w/new"),
        ("attributes", "/w/new"),
        ("renamed", "/w/named", "/w/new"),
        ("removed", "/w/named"),
        ("created", "/w/back"),
        ("modified", "/w/old"),
        ("removed", "/w/back"),
        ("created", "/w/d"),
        ("removed", "/w/d"),
        ("created", "/w/last"),
    ]
    assert [event["dir"] for event in events if event["path"] in ("/w/d", "/w/old")] == [False, True, True]
    assert told(uploaded) == [("created", "/w/up")]


async def test_directories_that_come_and_move_are_watched_with_what_is_in_them(box: Sidecar) -> None:
    await box.exec("mkdir -p /w/a/b /elsewhere/in/side; echo x > /elsewhere/in/side/f")
    async with watching(box, "/w", recursive="1") as watch:
        assert watch.start["directories"] == 3
        # Each step begins when the one before was seen, so that a watch of the new directory is all that can show it.
        await box.exec("mkdir -p /w/new/deep; echo x > /w/new/deep/f")
        await watch.until({"kind": "created", "path": "/w/new/deep/f"})
        await box.exec("mv /w/new /w/a/moved; echo x > /w/a/moved/deep/g")
        events = await watch.until({"kind": "created", "path": "/w/a/moved/deep/g"})
        assert ("renamed", "/w/a/moved", "/w/new") in told(events)
        await box.exec("mv /elsewhere/in /w/in")
        await watch.until({"kind": "created", "path": "/w/in/side/f"})
        await box.exec("echo y >> /w/in/side/f")
        await watch.until({"kind": "modified", "path": "/w/in/side/f"})
        await box.exec("mv /w/a /elsewhere/a")
        await watch.until({"kind": "removed", "path": "/w/a", "dir": True})
        await box.exec("echo x > /elsewhere/a/moved/unseen; echo x > /elsewhere/a/b/unseen; : > /w/last")
        await watch.until(LAST)
    created = [path for kind, path, *_ in told(watch.seen) if kind == "created"]
    assert len(created) == len(set(created))
    assert not [path for path in created if "unseen" in path]


async def test_lost_events_are_told_and_what_follows_is_seen(box: Sidecar) -> None:
    await box.exec("mkdir -p /w/a")
    async with watching(box, "/w", recursive="1") as watch:
        flood = "for n in range(20000): open(f'f{n % 7}', 'w').close(); os.unlink(f'f{n % 7}')"
        await box.exec(["python3", "-c", f"import os; os.chdir('/w/a')\n{flood}\nos.mkdir('/w/b')"])
        await watch.until({"kind": "overflow"})
        event, number = {"kind": "overflow"}, 0
        while event["kind"] == "overflow":  # another one may follow, and the file be in its gap
            number += 1
            await box.exec(f"echo x > /w/b/{number}")
            event = await watch.one_of({"kind": "overflow"}, {"kind": "created", "path": f"/w/b/{number}"})
    await usable(box)


async def test_long_paths_make_no_long_messages(box: Sidecar) -> None:
    chain = "import os; os.chdir('/w'); [(os.mkdir('d' * 240), os.chdir('d' * 240)) for _ in range(16)]"
    flood = "[open(str(n), 'w').close() for n in range(1500)]; open('last', 'w').close()"
    await box.exec(["sh", "-c", "mkdir -p /w /in; cd /in; touch $(seq 400)"])
    await box.exec(["python3", "-c", chain])
    deep = "/w" + f"/{'d' * 240}" * 16
    async with watching(box, "/w", recursive="1") as watch:
        assert watch.start["directories"] == 17
        assert (await box.exec(["python3", "-c", f"import os; os.chdir('{deep}')\n{flood}"]))[
            "exit_code"
        ] == 0
        seen: list[str] = []
        while f"{deep}/last" not in seen:
            kind, events = await watch.frame()
            assert kind == "w"
            assert len(json.dumps(events)) < 700_000
            seen += [event["path"] for event in events if event["kind"] == "created"]
        assert len(seen) == 1501
        await box.exec(f"cd {deep} && mv /in in")
        await watch.until({"kind": "overflow"})


async def test_ends_are_told(make: Make) -> None:
    box = await make(claim={})
    async with watching(box, "/tmp") as cut:
        assert (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            await cut.frame()
    await box.exec("mkdir -p /gone /w")
    async with watching(box, "/gone") as gone, watching(box, "/w") as watch:
        await box.exec("rmdir /gone")
        kind, end = await gone.frame()
        assert (kind, end["status"], end["error"]) == ("x", 404, "not_found")
        await box.instance("POST", "/v1/end", json={"verdict": "idle", "message": "no use"})
        kind, end = await watch.frame()
        assert (kind, end) == (
            "x",
            {"status": 410, "error": "ended", "verdict": "idle", "message": "no use"},
        )


async def test_rights_and_limits(box: Sidecar) -> None:
    await box.exec("mkdir -p /w/mine /w/theirs /many && chown 1234 /w/mine && chmod 700 /w/mine /w/theirs")
    await box.exec("cd /many && for n in $(seq 90); do mkdir $n && mkdir $(seq -f $n/%g 100); done")
    for query, status, error in (
        ({"path": "/w/theirs", "user": "1234"}, 403, "permission"),
        ({"path": "/none"}, 404, "not_found"),
        ({"path": "/etc/passwd"}, 409, "not_a_directory"),
        ({"path": "/w", "recursive": "perhaps"}, 400, "bad_request"),
        ({"path": "/many", "recursive": "1"}, 413, "too_large"),
    ):
        answer = await box.call("GET", "/v1/files/watch", params=query)
        assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
    assert answer.json()["message"].startswith("more than 8192 directories to watch")
    async with watching(box, "/w", recursive="1", user="1234") as watch:
        assert watch.start["directories"] == 2
        await box.exec("echo x > /w/theirs/unseen; echo x > /w/mine/f")
        assert told(await watch.until({"kind": "modified", "path": "/w/mine/f"})) == [
            ("created", "/w/mine/f"),
            ("modified", "/w/mine/f"),
        ]
        descriptors = box.descriptors()
        held = [watching(box, "/w") for _ in range(15)]
        await asyncio.gather(*(one.__aenter__() for one in held))
        answer = await box.call("GET", "/v1/files/watch", params={"path": "/w"})
        assert (answer.status_code, answer.json()["error"]) == (409, "too_many_watches"), answer.text
        await asyncio.gather(*(one.__aexit__(None, None, None) for one in held))
        await until(lambda: box.descriptors() <= descriptors)
