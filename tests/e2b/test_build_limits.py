"""What builds may not do, and what they leave: hostile archives, too many at once, deleted templates, old leftovers."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.e2b.builds import (
    OTHER_KEY,
    START,
    checkpoints,
    client,
    ended,
    live_sandboxes,
    path_of,
    requested,
    stack,
    started,
    status,
    uploaded,
)
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

__all__ = ["client", "stack"]

AT_ONCE = 8
DAY = 86400.0


def entry(name: str, *, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.mode = 0o755
    if link:
        made.type, made.linkname = tarfile.SYMTYPE, link
    elif name.endswith("/"):
        made.type = tarfile.DIRTYPE
    return made


def copy(files_hash: str, *args: str) -> dict[str, Any]:
    return {"type": "COPY", "args": list(args), "filesHash": files_hash}


def run(command: str) -> dict[str, Any]:
    return {"type": "RUN", "args": [command]}


def messages(found: dict[str, Any]) -> list[str]:
    return [each["message"] for each in found["logEntries"]]


def test_an_archive_writes_nothing_outside_of_its_copy(client: httpx.Client, stack: Stack) -> None:
    name = f"escaped-{secrets.token_hex(8)}"
    build = requested(client, "hostile")
    entries = [entry("d/"), entry("d/plain"), entry("d/out", link="/etc"), entry(f"/{name}")]
    uploaded(client, build, "45" * 32, [(each, b"") for each in entries])
    look = run(f"ls /srv/d; readlink /srv/d/out; find / -xdev -maxdepth 3 -name {name} | sed 's/^/found /'")
    started(client, build, copy("45" * 32, "d", "/srv/d"), look)
    found = ended(client, build)
    assert found["status"] == "ready", messages(found)
    assert {"out", "plain", "/etc"} <= set(messages(found))
    assert [each for each in messages(found) if each.startswith("found ")] == []
    # Upwards, and through a link of its own.
    for number, hostile in enumerate((f"../../{name}", f"d/out/{name}"), 46):
        upwards = requested(client, "hostile")
        entries = [entry("d/"), entry("d/out", link="/etc"), entry(hostile)]
        uploaded(client, upwards, f"{number}" * 32, [(each, b"") for each in entries])
        started(client, upwards, copy(f"{number}" * 32, "d", "/srv/d"))
        found = ended(client, upwards)
        assert (found["status"], found["reason"]["step"]) == ("error", "1"), messages(found)
    places = [Path("/"), Path("/etc"), Path("/srv"), stack.state_dir, *stack.state_dir.parents]
    assert [place for place in places if (place / name).exists()] == []


def test_a_copied_link_stays_a_link_and_replaces_no_directory(client: httpx.Client) -> None:
    build = requested(client, "links")
    files = "50" * 32
    uploaded(client, build, files, [(entry("d/"), b""), (entry("d/link", link="/etc/passwd"), b"")])
    started(
        client,
        build,
        copy(files, "d/link", "/srv/there", "daemon", "0600"),
        copy(files, "d/link", "/srv/dir/"),
        copy(files, "d", "/srv/all", "", "0700"),
        run("for at in there dir/link all/link; do readlink /srv/$at; done; stat -c %U /srv/there"),
        run("stat -Lc '%a %U' /srv/there"),
    )
    found = ended(client, build)
    assert found["status"] == "ready", found
    links = [each for each in messages(found) if not each.startswith(("[", "waiting", "keeping", "the "))]
    assert links == ["/etc/passwd"] * 3 + ["daemon", "644 root"]
    again = requested(client, "links")
    kept = run("mkdir -p /srv/d/link && touch /srv/d/link/kept")
    started(client, again, kept, copy(files, "d", "/srv/d"))
    found = ended(client, again)
    assert (found["status"], found["reason"]["step"]) == ("error", "2"), found


def test_no_more_builds_run_than_may_and_each_end_makes_room(stack: Stack) -> None:
    headers = {"X-API-Key": OTHER_KEY}
    with plain_http.client(base_url=f"{stack.url}/e2b", headers=headers, timeout=60) as other:
        builds = [requested(other, f"many-{number}") for number in range(AT_ONCE + 2)]
        long = {**START, "steps": [run("sleep 1000")]}
        with ThreadPoolExecutor(len(builds)) as several:
            answers = list(several.map(lambda build: other.post(path_of(build), json=long), builds))
        assert sorted(each.status_code for each in answers) == [202] * AT_ONCE + [429] * 2
        (one, two) = [build for build, each in zip(builds, answers, strict=True) if each.status_code == 429]
        assert (status(other, one)["status"], status(other, two)["status"]) == ("waiting", "waiting")
        for build in builds:
            if build not in (one, two):
                assert other.delete(f"/templates/{build['templateID']}").status_code == 204
        bad = {"fromTemplate": "no-such"}
        wait_until(lambda: other.post(path_of(one), json=bad).status_code == 400)
        # What is refused keeps no place.
        assert {other.post(path_of(one), json=bad).status_code for _ in range(AT_ONCE)} == {400}
        started(other, one)
        assert ended(other, one)["status"] == "ready"


def test_a_build_of_a_deleted_template_never_begins(client: httpx.Client, stack: Stack) -> None:
    build, other = requested(client, "dropped"), requested(client, "dropped", tags=["v2"])
    assert client.delete(f"/templates/{build['templateID']}").status_code == 204
    assert client.delete(f"/templates/{build['templateID']}").status_code == 404
    again = requested(client, "dropped")  # has the same id, and is another template
    for each in (build, other):
        found = status(client, each)
        assert (found["status"], "was deleted" in found["reason"]["message"]) == ("error", True), found
        answer = client.post(path_of(each), json=START)
        assert (answer.status_code, "was deleted" in answer.text) == (404, True), answer.text
        assert live_sandboxes(stack, each) == []
    started(client, again)
    assert ended(client, again)["status"] == "ready"
    assert client.delete("/templates/dropped").status_code == 204


def directory_of(stack: Stack, build: dict[str, Any]) -> Path:
    return stack.state_dir / "checkpoints" / "e2b" / build["templateID"][:12]


def changed(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_build_whose_log_cannot_be_written_has_failed_and_leaves_no_files(
    stack: Stack, client: httpx.Client
) -> None:
    build = requested(client, "unlogged")
    directory = directory_of(stack, build)
    log = directory / f"{build['buildID']}.log"
    log.mkdir()
    started(client, build)
    document = directory / f"build-{build['buildID']}.json"
    wait_until(lambda: json.loads(document.read_text())["state"] == "error")
    wait_until(lambda: checkpoints(stack, "unlogged") == [])
    log.rmdir()
    assert status(client, build)["status"] == "error"


def test_a_build_is_ready_though_old_files_of_its_template_cannot_be_deleted(
    stack: Stack, client: httpx.Client
) -> None:
    first, second = requested(client, "stuck"), requested(client, "stuck")
    started(client, first)
    assert ended(client, first)["status"] == "ready"
    (known,) = checkpoints(stack, "stuck")
    place, old = stack.state_dir / "checkpoints", f"cp-{secrets.token_hex(12)}"
    (place / f"{old}.json").write_text((place / f"{known['id']}.json").read_text().replace(known["id"], old))
    (files,) = place.glob(f"{known['id']}.packs.*")
    stuck = place / files.name.replace(known["id"], old)
    (stuck / "manifest").mkdir(parents=True)  # no file that a delete could remove
    changed(directory_of(stack, first) / f"template-{first['templateID']}.json", former={old: 0.0})
    try:
        started(client, second, run("true"))
        document = directory_of(stack, second) / f"build-{second['buildID']}.json"
        wait_until(lambda: json.loads(document.read_text())["state"] in ("ready", "error"))
        wait_until(lambda: not live_sandboxes(stack, second))
    finally:
        (stuck / "manifest").rmdir()
    assert status(client, second)["status"] == "ready"
    assert requested(client, "stuck")  # its sweep repeats the delete


def test_who_looks_at_a_build_of_a_dead_gateway_does_not_make_it_run_for_another(
    stack: Stack, client: httpx.Client
) -> None:
    build = requested(client, "looked-at")
    started(client, build)
    assert ended(client, build)["status"] == "ready"
    directory = directory_of(stack, build)
    changed(directory / f"build-{build['buildID']}.json", state="building")
    with (directory / f"{build['buildID']}.lock").open("w") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        assert status(client, build)["status"] == "ready"


def test_a_gateway_that_stops_fails_a_waiting_build_and_the_next_one_deletes_what_is_old(
    stack: Stack, client: httpx.Client
) -> None:
    build, cut = requested(client, "left"), requested(client, "cut-early")
    tagged, untagged = requested(client, "tagged"), requested(client, "untagged")
    directory = directory_of(stack, build)
    for each in (tagged, untagged):
        started(client, each)
        assert ended(client, each)["status"] == "ready"
    started(client, cut, run("sleep 1000"))
    assert stack.terminate() == 0  # while the build still waits for its sandbox
    for each in (tagged, untagged):  # as if it had died just after, and just before the tag moved
        changed(directory / f"build-{each['buildID']}.json", state="building")
    changed(directory / f"template-{untagged['templateID']}.json", tags={})
    files = directory / "files"
    files.mkdir(exist_ok=True)
    old = [
        files / f"{'48' * 32}.tar",
        files / f"{'48' * 32}.0123.part",
        directory / f"build-{build['buildID']}.json",
    ]
    young = files / f"{'49' * 32}.tar"
    for path in (*old, young):
        path.touch()
    for path in (*old, *(directory / f"build-{each['buildID']}.json" for each in (tagged, untagged))):
        os.utime(path, (time.time() - DAY, time.time() - DAY))
    stack.start()
    wait_until(lambda: not [path for path in old if path.exists()])
    assert young.exists()
    found = status(client, cut)
    assert (found["status"], "gateway stopped" in found["reason"]["message"]) == ("error", True), found
    wait_until(lambda: checkpoints(stack, "untagged") == [])
    assert [status(client, each)["status"] for each in (tagged, untagged)] == ["ready", "error"]
    assert len(checkpoints(stack, "tagged")) == 1
