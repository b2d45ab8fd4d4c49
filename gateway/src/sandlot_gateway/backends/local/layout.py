"""The paths of the local backend: one gateway's state directory and the machine's cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sandlot_contract.ids import InstanceId, is_instance_id

from ...core.backend import BackendError

_SUN_PATH = 107  # maximum bytes of a Unix socket's path on Linux
_LONGEST = "/instances/i-0123456789abcdef/sidecar.sock.4194304"  # bound under its pid's name, then renamed


@dataclass(frozen=True, slots=True)
class InstanceDir:
    """One instance's directory."""

    path: Path

    @property
    def id(self) -> InstanceId:
        return InstanceId(self.path.name)

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def record(self) -> Path:
        return self.path / "instance.json"

    @property
    def socket(self) -> Path:
        return self.path / "sidecar.sock"

    @property
    def log(self) -> Path:
        return self.path / "sidecar.log"

    @property
    def address(self) -> str:
        return f"unix:{self.socket}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below a state directory (secrets, sockets; small) and a cache directory (images, byte code)."""

    state_dir: Path
    cache_dir: Path

    @property
    def lock(self) -> Path:
        return self.state_dir / "lock"

    @property
    def instances(self) -> Path:
        return self.state_dir / "instances"

    @property
    def pools(self) -> Path:
        return self.state_dir / "pools.json"

    @property
    def warmups(self) -> Path:
        return self.state_dir / "warmups.json"

    @property
    def runs(self) -> Path:
        return self.state_dir / "runs.json"

    @property
    def gateway_socket(self) -> Path:
        return self.state_dir / "gateway.sock"

    @property
    def images(self) -> Path:
        # Without `..`: sidecars compare the paths of images with it.
        return Path(os.path.abspath(self.cache_dir / "images"))

    @property
    def bytecode(self) -> Path:
        return self.cache_dir / "bytecode"

    def instance(self, instance_id: InstanceId) -> InstanceDir:
        return InstanceDir(self.instances / instance_id)

    def make(self) -> None:
        """Create the directories, readable by this user only. Raises BackendError naming the path."""
        check_length(self.state_dir)
        for path in (self.state_dir, self.instances, self.cache_dir, self.images, self.bytecode):
            try:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise BackendError(f"cannot make {path}: {error.strerror}", field="state_dir") from error

    def instance_dirs(self) -> list[InstanceDir]:
        try:
            names = sorted(os.listdir(self.instances))
        except FileNotFoundError:
            return []
        return [InstanceDir(self.instances / name) for name in names if is_instance_id(name)]


def check_length(state_dir: Path) -> None:
    """Raise BackendError with path and limit if the path is too long for the sockets below it."""
    length, limit = len(os.fsencode(state_dir)), _SUN_PATH - len(_LONGEST)
    if length > limit:
        raise BackendError(
            f"state directory {state_dir}: the path has {length} bytes, which is too long for the Unix sockets "
            f"in it: at most {limit}; choose another one with --state-dir or SANDLOT_HOME",
            field="state_dir",
        )


def default_cache_dir() -> Path:
    """Return `$SANDLOT_CACHE`, else /var/cache/sandlot for root, else $XDG_CACHE_HOME/sandlot or ~/.cache/sandlot.

    Not in the state directory, which is often a tmpfs: every image would take memory.
    """
    if cache := os.environ.get("SANDLOT_CACHE"):
        return Path(cache).expanduser().absolute()
    if os.geteuid() == 0 and os.access("/var/cache", os.W_OK):
        return Path("/var/cache/sandlot")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sandlot"
