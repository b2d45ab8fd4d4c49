"""Whoever follows a watch's events knows what is there, whatever happened between the reads: with the real kernel."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_sidecar.core.watched import Watched
from sandlot_sidecar.executor import file_watch, syscalls
from sandlot_sidecar.server.watch_events import Events

BEGIN = ("top/a/a", "top/b", "outside/a")
ANY = st.integers(0, 60)  # of what there is then
STEPS = st.tuples(
    st.sampled_from(["mkdir", "write", "remove", "move", "move"]),
    ANY,
    ANY,
    st.sampled_from("abf"),
    st.booleans(),
)


class Follower:
    """The server's part of a watch without its loop, and a client that applies the events to what it knows."""

    def __init__(self, top: str) -> None:
        self.instance = syscalls.LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        answer, _ = file_watch.do_watch(self._message(top))
        watched, at = Watched(top), []
        for number, parent, name in answer["found"]:
            at.append(watched.add(number, name, at[parent] if parent >= 0 else None))
        self.events = Events(watched, recursive=True)
        self.known = everything(top)

    def _message(self, top: str, **more: Any) -> dict[str, Any]:
        return {"instance": self.instance, "path": top, "most": 1000, "recursive": True, **more}

    def read(self) -> None:
        try:
            data = os.read(self.instance, 1 << 16)
        except BlockingIOError:
            data = b""
        self._apply(self.events.take(data, last=True))
        self._forget()
        if more := self.events.new_directories():
            answer, _ = file_watch.do_watch(self._message(self.events.watched.path, more=more))
            self._apply(self.events.added(answer))
            self._forget()

    def _forget(self) -> None:
        for number in self.events.stale:
            syscalls.LIBC.inotify_rm_watch(self.instance, number)
        self.events.stale.clear()

    def _apply(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            path = event["path"]
            if event["kind"] == "created":
                self.known.add(path)
            elif event["kind"] == "removed":
                self.known = {one for one in self.known if not inside(one, path)}
            elif event["kind"] == "renamed":
                old = event["from"]
                moved = {path + one.removeprefix(old) for one in self.known if inside(one, old)} | {path}
                self.known = {one for one in self.known if not inside(one, old)} | moved


def inside(one: str, path: str) -> bool:
    return one == path or one.startswith(f"{path}/")


def everything(top: str) -> set[str]:
    return {str(path) for path in Path(top).rglob("*")}


def do(root: Path, kind: str, one: int, other: int, name: str) -> None:
    """One step, if the kernel allows it: a directory does not move into itself, or in the place of a full one."""
    directories = sorted(path for path in root.rglob("*") if path.is_dir())
    entries = sorted(path for path in root.rglob("*") if path.parent != root)
    place = directories[one % len(directories)] / name
    entry = entries[other % len(entries)] if entries else root / "none"
    with contextlib.suppress(OSError):
        if kind == "mkdir":
            place.mkdir()
        elif kind == "write":
            place.write_text("x")
        elif kind == "move":
            entry.rename(place)
        elif entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@given(st.lists(STEPS, max_size=12))
@settings(max_examples=60)
def test_events_lead_to_what_is_there(steps: list[tuple[str, int, int, str, bool]]) -> None:
    root = Path(tempfile.mkdtemp(prefix="watch-"))
    for place in BEGIN:
        (root / place).mkdir(parents=True)
    follower = Follower(str(root / "top"))
    try:
        for *step, reads in steps:
            do(root, *step)
            if reads:
                follower.read()
        for _ in range(4):  # each may find new directories, or settle what has moved away
            follower.read()
        assert follower.events.lost or follower.known == everything(str(root / "top"))
    finally:
        os.close(follower.instance)
        shutil.rmtree(root)


def test_paths_that_renames_make_too_long_are_lost(tmp_path: Path) -> None:
    chains = [tmp_path / "top" / "/".join([letter * 200] * 12) for letter in "ab"]
    for chain in chains:
        chain.mkdir(parents=True)
    follower = Follower(str(tmp_path / "top"))
    deepest = os.open(chains[1], os.O_RDONLY)
    try:
        (tmp_path / "top" / ("b" * 200)).rename(chains[0] / "moved")
        follower.read()
        assert not follower.events.lost
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=deepest))
        follower.read()
        assert follower.events.lost
        assert not [path for path in follower.known if path.endswith("/file")]
    finally:
        os.close(deepest)
        os.close(follower.instance)
