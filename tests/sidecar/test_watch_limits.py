"""Watches beyond what they may take, or what the node's kernel gives: each says which limit it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.executor import file_watch, syscalls
from sandlot_sidecar.server.file_watch import BUSY_PATIENCE, FileWatch
from sandlot_sidecar.server.watch_room import Room

from tests.controller.virtual_time import run

# In a user namespace of its own, whose kernel watches this many directories.
FEW = """
import json, os, sys
from sandlot_sidecar.executor import file_watch, syscalls
from sandlot_sidecar.executor.errors import ExecutorError
top, most = sys.argv[1:]
syscalls.unshare(syscalls.CLONE_NEWUSER)
with open("/proc/sys/user/max_inotify_watches", "w") as limit:
    limit.write(most)
instance = syscalls.LIBC.inotify_init1(os.O_CLOEXEC)
try:
    answer, _ = file_watch.do_watch({"instance": instance, "path": top, "most": 100, "recursive": True})
    print(json.dumps([len(answer["found"]), answer["beyond"]]))
except ExecutorError as error:
    print(json.dumps([error.code, str(error)]))
"""


def watched(top: Path, **fields: Any) -> dict[str, Any]:
    instance = syscalls.LIBC.inotify_init1(os.O_CLOEXEC)
    try:
        message = {"instance": instance, "path": str(top), "most": 100, "recursive": True, **fields}
        return file_watch.do_watch(message)[0]
    finally:
        os.close(instance)


def test_entries_are_looked_at_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "MOST_LOOKED_AT", 10)
    for number in range(10):
        (tmp_path / str(number)).touch()
    assert watched(tmp_path)["beyond"] == ""
    (tmp_path / "one more").touch()
    assert watched(tmp_path)["beyond"] == "entries"
    assert watched(tmp_path, recursive=False)["beyond"] == ""  # looks at none


@pytest.mark.root
@pytest.mark.parametrize(
    ("most", "answer"),
    [("3", [3, "kernel"]), ("4", [4, ""]), ("0", ["too_large", file_watch.KERNEL_FULL])],
    ids=["fewer", "enough", "none"],
)
def test_a_kernel_that_watches_no_more_is_told(tmp_path: Path, most: str, answer: list[Any]) -> None:
    for number in range(3):
        (tmp_path / str(number)).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FEW, str(tmp_path), most], stdout=subprocess.PIPE, check=True, timeout=60
    )
    assert json.loads(done.stdout) == answer


class Executor:
    """Answers each request for a watch with `beyond`, or with a 503."""

    def __init__(self, beyond: str | None, *, fd: int = -1) -> None:
        self.beyond = beyond
        self.fd = fd
        self.asked = 0

    async def ask(self, *args: Any, **fields: Any) -> tuple[dict[str, Any], list[int]]:
        self.asked += 1
        if self.beyond is None:
            raise ApiError(503, "busy", "the node has no inotify instance left")
        return {"beyond": self.beyond}, [self.fd]


class Answer:
    """The frames that a client gets."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, Any]] = []

    async def write(self, data: bytes) -> None:
        if data[:1] != b"k":
            self.finish(data)

    def finish(self, data: bytes) -> None:
        self.frames.append((chr(data[0]), json.loads(data[5:])))


def watch_by(executor: Executor) -> FileWatch:
    instance: Any = SimpleNamespace(executor=executor)
    return FileWatch(instance, Room(), path="/w", recursive=True, acting={})


@pytest.mark.parametrize(
    ("beyond", "text"),
    [
        ("directories", "more than 8192 directories to watch"),
        ("entries", "more than 200,000 entries below it"),
        ("kernel", "raise fs.inotify.max_user_watches"),
    ],
)
def test_each_limit_is_a_413_that_names_it(beyond: str, text: str) -> None:
    other_end, fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    async def opened() -> None:
        await watch_by(Executor(beyond, fd=fd)).open()

    try:
        with pytest.raises(ApiError, match=text) as caught:
            run(opened())
        assert os.read(other_end, 1) == b""  # the instance is closed
    finally:
        os.close(other_end)
    assert (caught.value.status, caught.value.code, caught.value.field) == (413, "too_large", "path")


def test_a_watch_that_cannot_be_renewed_ends_after_30_seconds_of_503() -> None:
    async def watched_for() -> tuple[float, int, list[tuple[str, Any]]]:
        executor, answer = Executor(None), Answer()
        request: Any = SimpleNamespace(start=lambda *, kind: answer)
        watch = watch_by(executor)  # without the kernel's part, as after lost events
        await watch.run(request)
        return watch._loop.time(), executor.asked, answer.frames

    lasted, asked, (start, end) = run(watched_for())
    assert start[0] == "s"
    assert (end[0], end[1]["status"], end[1]["error"]) == ("x", 503, "busy")
    assert BUSY_PATIENCE <= lasted < BUSY_PATIENCE + 10
    assert asked > 10
