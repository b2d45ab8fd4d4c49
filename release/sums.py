"""Writes and reads a release's list of files with their digests, and tells by it which directories are releases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from images.oci import file_digest
from release.errors import ReleaseError

SUMS = "SHA256SUMS"
BILL = "sbom.cdx.json"


def write(out: Path) -> None:
    """Write the digests of all files, as `sha256sum --check` reads them."""
    lines = [f"{file_digest(out / name)}  {name}\n" for name in sorted(_files(out))]
    (out / SUMS).write_text("".join(lines))


def read(out: Path) -> dict[str, str]:
    """Return the digests of a release's files by their names. Raises ReleaseError."""
    try:
        lines = (out / SUMS).read_text().splitlines()
    except FileNotFoundError as error:
        raise ReleaseError(f"{out / SUMS}: not found; build the release first") from error
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def check_replaceable(out: Path) -> None:
    """Check that a release that replaces this directory deletes nothing else. Raises ReleaseError."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ReleaseError(f"{out} is no directory; choose another (OUT)")
    listed = read(out) if (out / SUMS).is_file() else {}
    # Other projects have lists of this name, too.
    ours = {SUMS, *listed} if BILL in listed else set[str]()
    foreign = next((name for name in _files(out) if name not in ours), None)
    if foreign is not None:
        raise ReleaseError(
            f"{out} is neither empty nor an earlier release: it holds {foreign}, "
            "which a release would delete; choose another directory (OUT)"
        )


def _files(out: Path) -> Iterator[str]:
    return (path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir())
