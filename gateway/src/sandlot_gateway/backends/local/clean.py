"""`python -m sandlot_gateway.backends.local.clean`: removes everything that a stack left on this machine."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandlot_contract.ids import is_instance_id

from ...core.backend import BackendError
from ...state_dir import default_state_dir
from .cgroups import mount_points
from .cgroups.base import NAME
from .layout import InstanceDir, Layout, default_cache_dir
from .lock import InUse, StateLock
from .processes import key_of, kill_all, sidecar_configs
from .records import load_record
from .remains import Removed, remove_remains
from .trees import remove_tree


@dataclass(slots=True)
class Report:
    """What was removed: instances and other files."""

    state_dir: str
    gateway_killed: int | None = None
    instances: list[Removed] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [f"{removed.id}: {problem}" for removed in self.instances for problem in removed.problems]


def clean(
    state_dir: Path, *, force: bool = False, images: bool = False, cache_dir: Path | None = None
) -> Report:
    """End and remove every instance below `state_dir`, in any state; with `images` also the cache.

    Raises InUse while a gateway holds the directory; `force` kills that gateway first. The master key and the records
    of finished sandboxes stay.
    """
    layout = Layout(state_dir.absolute(), (cache_dir or default_cache_dir()).absolute())
    report = Report(str(layout.state_dir))
    if layout.state_dir.is_dir():
        lock = StateLock(layout.lock)
        report.gateway_killed = _take(lock, force=force)
        try:
            _clean_instances(layout, report)
            _clean_files(layout, report)
        finally:
            lock.release()
    if images and layout.images.is_dir():
        report.images = _clean_images(layout.images)
    return report


def _take(lock: StateLock, *, force: bool) -> int | None:
    try:
        lock.acquire()
        return None
    except InUse as error:
        if not force or error.pid is None:
            raise
        key = key_of(error.pid)
        if key is not None:
            kill_all([key], timeout=5.0)
        deadline = time.monotonic() + 5.0
        while True:
            try:
                lock.acquire()
                return error.pid
            except InUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def _clean_instances(layout: Layout, report: Report) -> None:
    found = {directory.id: directory for directory in layout.instance_dirs()}
    # Includes running sidecars whose directory was removed.
    for config in sidecar_configs(layout.instances):
        if is_instance_id(config.parent.name):
            found.setdefault(config.parent.name, InstanceDir(config.parent))
    for instance_id, directory in sorted(found.items()):
        record = load_record(directory.record)
        cgroups = [Path(text) for text in record.cgroups] if record is not None else []
        if not cgroups:
            cgroups = [mount / NAME / instance_id for mount in mount_points()]
        report.instances.append(remove_remains(directory, cgroups))
    _remove_parents()


def _remove_parents() -> None:
    """Remove the common parent groups if no stack uses them."""
    for mount in mount_points():
        try:
            os.rmdir(mount / NAME)
        except OSError:
            continue


def _clean_files(layout: Layout, report: Report) -> None:
    for path in (layout.gateway_socket, layout.pools, layout.state_dir / "endpoint.json"):
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        report.files.append(str(path))


def _clean_images(directory: Path) -> list[str]:
    removed: list[str] = []
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            remove_tree(path)
        else:
            path.unlink()
        removed.append(str(path))
    return removed


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Exit status 0: clean; 1: something remains; 2: a gateway runs, or a bad argument."""
    parser = argparse.ArgumentParser(
        prog="sandlot local clean", description="Remove what a local stack left."
    )
    parser.add_argument("--state-dir", type=Path, help="default: as for the gateway")
    parser.add_argument("--force", action="store_true", help="kill the gateway that uses the directory")
    parser.add_argument("--images", action="store_true", help="remove unpacked images too")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    state_dir = options.state_dir or default_state_dir()
    try:
        report = clean(state_dir, force=options.force, images=options.images)
    except (BackendError, OSError) as error:
        print(f"sandlot local clean: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(asdict(report)))
    else:
        print("\n".join(_lines(report)))
    return 1 if report.problems else 0


def _lines(report: Report) -> list[str]:
    lines = []
    if report.gateway_killed is not None:
        lines.append(f"killed the gateway with pid {report.gateway_killed}")
    for removed in report.instances:
        lines.append(
            f"{removed.id}: {len(removed.processes)} processes, {len(removed.cgroups)} cgroups, "
            f"{len(removed.mounts)} mounts"
        )
    lines += [f"removed {path}" for path in report.files]
    if report.images:
        lines.append(f"removed {len(report.images)} entries of the image cache")
    lines += [f"left: {problem}" for problem in report.problems]
    return lines or [f"nothing to clean in {report.state_dir}"]


if __name__ == "__main__":
    sys.exit(main())
