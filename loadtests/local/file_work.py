"""File-heavy work as agents do it: `python3 file_work.py FOLDER` prints the seconds of each part.

`python3 file_work.py FOLDER ROOT` works on the files below ROOT instead, which an image brought.

It needs only the standard library, `git`, `tar`, `find` and `pip`, so that the same text runs on the machine, in a plain
container and in a sandbox.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator

FILES = 4_000
FILE_BYTES = 2_400
TRACKED = 20_000
WHEEL_FILES = 2_000
LARGE = 256 << 20
_BLOCK = 1 << 20
_IN_A_FOLDER = 100
# The machine's settings must not change what git does here. Without the last ones a commit starts a garbage collection
# in the background, which writes into a folder that is measured or deleted.
_GIT_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "gc.auto",
    "GIT_CONFIG_VALUE_0": "0",
}


def measure(folder: str) -> dict[str, float]:
    """Return the seconds by part. Creates the folder and removes it at the end."""
    os.makedirs(folder)
    try:
        found = small_files(folder)
        found["untar"] = untar(folder)
        found["git_status"] = git_status(folder)
        found["pip"] = pip_install(folder)
        return found | large_file(folder)
    finally:
        shutil.rmtree(folder)


def measure_image(folder: str, root: str) -> dict[str, float]:
    """Return the seconds by part, and the number of `files` below the root. Creates the folder and removes it at the end."""
    os.makedirs(folder)
    try:
        found = find(root)
        found["tar"] = repack(folder, root)
        found["git_status"] = git_status_of(folder, root)
        found["pip"] = pip_install(folder)
        return found
    finally:
        shutil.rmtree(folder)


def find(root: str) -> dict[str, float]:
    """Time `find` of everything below a root with its status."""
    listed = b""

    def listing() -> None:
        nonlocal listed
        listed = run("find", root, "-printf", "%i %s %T@\\n")

    took = timed(listing)
    return {"find": took, "files": float(listed.count(b"\n"))}


def repack(folder: str, root: str) -> float:
    """Time `tar` that packs what is below a root, and unpacks it in the folder."""
    archive, out = f"{folder}/packed.tar", f"{folder}/unpacked"
    os.mkdir(out)

    def work() -> None:
        run("tar", "-C", root, "-cf", archive, ".")
        run("tar", "-xf", archive, "-C", out)

    took = timed(work)
    shutil.rmtree(out)
    os.unlink(archive)
    return took


def git_status_of(folder: str, root: str) -> float:
    """Time `git status` of what is below a root, all of it tracked, with a warm index: the median of three."""
    history = f"{folder}/history"
    run("git", "init", "--quiet", history)
    git = ("git", "-C", root, "--git-dir", f"{history}/.git", "--work-tree", root)
    # Uncompressed, since nobody reads these objects; files that a .gitignore names are tracked, too.
    run(*git, "-c", "core.looseCompression=0", "add", "--all", "--force")
    run(*git, "-c", "user.name=bench", "-c", "user.email=bench@example.org", "commit", "--quiet", "-m", ".")
    took = _clean_status(*git)
    shutil.rmtree(history)
    return took


def _clean_status(*git: str) -> float:
    status = (*git, "status", "--porcelain")
    assert run(*status) == b"", "the tree is not clean"
    return statistics.median(timed(lambda: run(*status)) for _ in range(3))


def small_files(folder: str) -> dict[str, float]:
    """Write, walk and stat, read, copy a tree of small files, and remove both trees."""
    tree, copy = f"{folder}/tree", f"{folder}/copy"
    found = {"write": timed(lambda: write_tree(tree, files=FILES))}
    names: list[str] = []

    def walk() -> None:
        for place, _, files in os.walk(tree):
            for name in files:
                os.lstat(f"{place}/{name}")
                names.append(f"{place}/{name}")

    def read() -> None:
        for name in names:
            with open(name, "rb") as file:
                file.read()

    def remove() -> None:
        shutil.rmtree(tree)
        shutil.rmtree(copy)

    found["walk"] = timed(walk)
    assert len(names) == FILES, len(names)
    found["read"] = timed(read)
    found["copy"] = timed(lambda: shutil.copytree(tree, copy))
    found["remove"] = timed(remove)
    return found


def untar(folder: str) -> float:
    source, archive, out = f"{folder}/source", f"{folder}/source.tar", f"{folder}/untarred"
    write_tree(source, files=FILES)
    with tarfile.open(archive, "w") as tar:
        tar.add(source, "source")
    shutil.rmtree(source)
    os.mkdir(out)
    took = timed(lambda: run("tar", "-xf", archive, "-C", out))
    shutil.rmtree(out)
    os.unlink(archive)
    return took


def git_status(folder: str) -> float:
    """Time `git status` in a clean tree with a warm index: the median of three."""
    tree = f"{folder}/repository"
    run("git", "init", "--quiet", tree)
    run("git", "-C", tree, "fast-import", "--quiet", stdin=b"".join(_history()))
    run("git", "-C", tree, "reset", "--quiet", "--hard", "main")
    took = _clean_status("git", "-C", tree)
    shutil.rmtree(tree)
    return took


def _history() -> Iterator[bytes]:
    """Yield one commit of many files for `git fast-import`."""
    yield b"commit refs/heads/main\ncommitter bench <bench@example.org> 0 +0000\ndata 1\n.\n"
    for number in range(TRACKED):
        content = _content(number)
        yield b"M 644 inline %s\ndata %d\n" % (_place(number).encode(), len(content))
        yield content + b"\n"


def pip_install(folder: str) -> float:
    """Time `pip install` of a local wheel, including the compilation of its modules."""
    wheel = f"{folder}/bench-1-py3-none-any.whl"
    info = "bench-1.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        names = [f"bench/{_place(number)}.py" for number in range(WHEEL_FILES)]
        for number, name in enumerate(names):
            archive.writestr(name, f"VALUE = {number}\n" + "# a line of a comment\n" * 20)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: bench\nVersion: 1\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        names += [f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD")]
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    prefix = f"{folder}/prefix"
    flags = ["--no-index", "--no-deps", "--no-cache-dir", "--ignore-installed", "--quiet"]
    flags += ["--disable-pip-version-check", "--no-warn-script-location", "--root-user-action=ignore"]
    took = timed(lambda: run(sys.executable, "-m", "pip", "install", *flags, "--prefix", prefix, wheel))
    installed = sum(name.endswith(".pyc") for _, _, files in os.walk(prefix) for name in files)
    assert installed == WHEEL_FILES, installed
    shutil.rmtree(prefix)
    os.unlink(wheel)
    return took


def large_file(folder: str) -> dict[str, float]:
    name = f"{folder}/large"
    block = bytes(range(256)) * (_BLOCK // 256)

    def write() -> None:
        with open(name, "wb", buffering=0) as file:
            for _ in range(LARGE // _BLOCK):
                file.write(block)

    def read() -> None:
        with open(name, "rb", buffering=0) as file:
            while file.read(_BLOCK):
                pass

    found = {"large_write": timed(write), "large_read": timed(read)}
    os.unlink(name)
    return found


def write_tree(root: str, *, files: int) -> None:
    for number in range(files):
        name = f"{root}/{_place(number)}"
        if number % _IN_A_FOLDER == 0:
            os.makedirs(os.path.dirname(name))
        with open(name, "wb") as file:
            file.write(_content(number))


def _place(number: int) -> str:
    return f"d{number // _IN_A_FOLDER:03}/f{number % _IN_A_FOLDER:02}"


def _content(number: int) -> bytes:
    line = b"%031d\n" % number
    return line * (FILE_BYTES // len(line))


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def run(*command: str, stdin: bytes = b"") -> bytes:
    """Run it and return its output; an error carries the output."""
    done = subprocess.run(command, input=stdin, capture_output=True, env={**os.environ, **_GIT_ENV})
    assert done.returncode == 0, f"{command[0]}: exit code {done.returncode}: {done.stderr[-500:].decode()}"
    return done.stdout


if __name__ == "__main__":
    words = sys.argv[1:]
    print(json.dumps(measure(*words) if len(words) == 1 else measure_image(*words)))
