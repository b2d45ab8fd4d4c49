"""Keeps unpacked images in the machine's cache: unpacks each once, under a lock, and publishes it by one rename."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..threads import DaemonThreads
from ..trees import remove_tree
from .blobs import layer_stream
from .errors import ImageError
from .layout import Manifest, open_source, read_manifest
from .reference import Host, OciPath, Registry, parse
from .unpack import Unpacker

log = logging.getLogger(__name__)

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TEMPORARY = ".new-"


@dataclass(frozen=True, slots=True)
class Image:
    """An unpacked image. `id`: its manifest's digest, `host` for the machine's own root."""

    id: str
    lower: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    bytes: int = 0  # compressed, of its layers; 0 if an earlier version unpacked it
    command: tuple[str, ...] | None = ()  # ENTRYPOINT and CMD; None if an earlier version unpacked it
    stop_signal: str = ""


class ImageStore:
    """Prepares images by name; any number of callers share one preparation."""

    def __init__(self, directory: Path, *, pull_timeout: float = 900.0) -> None:
        """`pull_timeout`: seconds for skopeo."""
        self._directory = directory
        self._pull_timeout = pull_timeout
        self._tasks: dict[str, asyncio.Task[Image]] = {}
        self._ready: dict[str, tuple[object, Image]] = {}
        self._threads = DaemonThreads(2, name="sandlot-image")
        self._stop = threading.Event()
        self._lock: int | None = None

    def open(self) -> None:
        """Remove half unpacked images of a killed gateway, unless another gateway uses this cache now."""
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            for path in [*self._directory.glob(f"{_TEMPORARY}*"), *self._directory.glob("*.tmp")]:
                remove_tree(path) if path.is_dir() else path.unlink()
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    async def prepare(self, name: str) -> Image:
        """Unpack the image. Raises ImageError; cancelling one caller does not stop the work for others."""
        reference = parse(name)
        if isinstance(reference, Host):
            env = {"PATH": _host_path(), "LANG": "C.UTF-8", "HOME": _home()}
            return Image("host", ("/",), env)
        stamp = _stamp(reference)
        known = self._ready.get(name)
        if known is not None and known[0] == stamp and _is_there(known[1]):
            return known[1]
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = asyncio.create_task(self._prepare(reference), name=f"image {name}")
            task.add_done_callback(partial(self._prepared, name))
        image = await asyncio.shield(task)
        self._ready[name] = (stamp, image)
        return image

    def _prepared(self, name: str, task: asyncio.Task[Image]) -> None:
        del self._tasks[name]
        if not task.cancelled():
            task.exception()  # asyncio would log it as an error if all callers have left

    def progress(self, name: str) -> str | None:
        """Return how far the preparation of this image is, or None if none runs."""
        return (
            "preparing the image: it is pulled and unpacked on this machine" if name in self._tasks else None
        )

    async def close(self, *, timeout: float) -> None:
        """Stop all work and remove what is half done, `timeout` seconds at most; the next start removes the rest."""
        self._stop.set()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        until = asyncio.get_running_loop().time() + timeout
        await _ended(tasks, timeout=timeout)
        if stuck := await self._threads.close(timeout=max(until - asyncio.get_running_loop().time(), 0.0)):
            log.warning("gave up %d images that were being unpacked", stuck)
            return  # with the lock: another gateway would remove what a thread still unpacks
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _prepare(self, reference: OciPath | Registry) -> Image:
        loop = asyncio.get_running_loop()
        if isinstance(reference, OciPath):
            return await loop.run_in_executor(self._threads, self._unpack, reference.path, reference.tag)
        pulled = self._pulled(reference)
        if (image := self._load_pulled(pulled)) is not None:
            return image
        layout = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self._directory))
        try:
            await self._pull(reference.name, layout)
            image = await loop.run_in_executor(self._threads, self._unpack, layout, None)
            _write_json(pulled, {"name": reference.name, "directory": Path(image.lower[0]).parent.name})
            return image
        finally:
            await loop.run_in_executor(self._threads, remove_tree, layout)

    async def _pull(self, name: str, layout: Path) -> None:
        skopeo = shutil.which("skopeo")
        if skopeo is None:
            raise ImageError(
                f"cannot pull {name}: skopeo is not installed; install it, or give a path to an OCI archive"
            )
        process = await asyncio.create_subprocess_exec(
            skopeo,
            *("copy", "--quiet", "--override-os", "linux", f"docker://{name}", f"oci:{layout}:image"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(self._pull_timeout):
                _, errors = await process.communicate()
        except TimeoutError as error:
            raise ImageError(
                f"cannot pull {name}: no end after {self._pull_timeout:g} s; pull it by hand and give its path"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise ImageError(f"cannot pull {name}: {errors.decode('utf-8', 'replace').strip()[-500:]}")

    def _unpack(self, path: Path, tag: str | None) -> Image:
        with open_source(path) as source:
            manifest = read_manifest(source, tag=tag)
            target = self._directory / manifest.digest.replace(":", "-")
            with _locked(target.with_suffix(".lock")):
                if not target.is_dir():
                    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self._directory))
                    try:
                        root = temporary / "rootfs"
                        root.mkdir()
                        root.chmod(0o755)  # whatever this process's umask: sandboxes see it
                        unpacker = Unpacker(str(root), stopped=self._stop.is_set)
                        for layer in manifest.layers:
                            with layer_stream(source, layer) as stream:
                                unpacker.layer(stream)
                        unpacker.ensure_directory(manifest.workdir)
                        unpacker.finish()
                        _write_json(temporary / "image.json", _settings(manifest))
                        os.rename(temporary, target)
                    finally:
                        remove_tree(temporary)
                elif _load(target).command is None:
                    _write_json(target / "image.json", _settings(manifest))
        return _load(target)

    def _pulled(self, reference: Registry) -> Path:
        return self._directory / f"ref-{hashlib.sha256(reference.name.encode()).hexdigest()[:32]}.json"

    def _load_pulled(self, path: Path) -> Image | None:
        try:
            return _load(self._directory / str(json.loads(path.read_bytes())["directory"]))
        except (OSError, ValueError, KeyError):
            return None


def _load(directory: Path) -> Image:
    settings = json.loads((directory / "image.json").read_bytes())
    command = settings.get("command")
    return Image(
        directory.name.replace("-", ":", 1),
        (str(directory / "rootfs"),),
        settings["env"],
        settings["workdir"],
        settings["user"],
        settings.get("bytes", 0),
        None if command is None else tuple(command),
        settings.get("stop_signal", ""),
    )


def _settings(manifest: Manifest) -> dict[str, object]:
    return {
        "env": {"PATH": DEFAULT_PATH} | manifest.env,
        "workdir": manifest.workdir,
        "user": manifest.user,
        "bytes": sum(layer.size for layer in manifest.layers),
        "command": manifest.command,
        "stop_signal": manifest.stop_signal,
    }


def _write_json(path: Path, value: object) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value))
    os.replace(temporary, path)


def _stamp(reference: OciPath | Registry) -> object:
    """Return a value that changes when the file behind a path does. Raises ImageError."""
    if isinstance(reference, Registry):
        return reference
    path = reference.path
    try:
        status = os.stat(path / "index.json" if path.is_dir() else path)
    except FileNotFoundError as error:
        missing = (
            f"{path}: no such file on the gateway's machine"
            if not path.exists()
            else f"{path}: not an OCI layout: no index.json"
        )
        raise ImageError(missing) from error
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        # Reading a pipe or a terminal may block a thread for ever.
        raise ImageError(f"{path}: neither an archive nor an OCI layout: no regular file")
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _is_there(image: Image) -> bool:
    return os.path.isdir(image.lower[0])


def _host_path() -> str:
    """Return PATH with this process's own Python first: a version manager's wrapper costs 80 ms a start."""
    return f"{os.path.join(sys.base_prefix, 'bin')}:{os.environ.get('PATH') or DEFAULT_PATH}"


def _home() -> str:
    return "/root" if os.geteuid() == 0 else str(Path.home())


async def _ended(tasks: Collection[asyncio.Task[Image]], *, timeout: float) -> None:
    """Wait up to `timeout` seconds for cancelled tasks, each of which removes what it has pulled."""
    if not tasks:
        return
    done, left = await asyncio.wait(tasks, timeout=timeout)
    for task in done:
        if not task.cancelled():
            task.exception()  # or asyncio logs that nobody has read it
    if left:
        log.warning("gave up %d pulls of images that do not end", len(left))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock an image, so that one process at a time unpacks it. Blocks."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
