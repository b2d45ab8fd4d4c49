"""Keeps the host's kernel settings that nodes change (systemd and the kubelet do), and puts them back."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.paths import STATE

NAMES = (
    "fs/file-max",
    "fs/nr_open",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def save(*, root: Path = Path("/proc/sys"), state: Path = STATE) -> None:
    """Writes the settings down, unless an earlier cluster that was not taken down has already done so."""
    file = state / "sysctls.json"
    if file.exists():
        return
    state.mkdir(parents=True, exist_ok=True)
    found = {name: (root / name).read_text().strip() for name in NAMES if (root / name).exists()}
    part = file.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.rename(file)


def settle(*, root: Path = Path("/proc/sys"), state: Path = STATE) -> None:
    """Puts the settings back as they were written down; the cluster runs as well with those."""
    file = state / "sysctls.json"
    if not file.exists():
        return
    for name, value in json.loads(file.read_text()).items():
        if (root / name).read_text().strip() != value:
            (root / name).write_text(value)


def restore(*, root: Path = Path("/proc/sys"), state: Path = STATE) -> None:
    """Puts the settings back and forgets them."""
    settle(root=root, state=state)
    (state / "sysctls.json").unlink(missing_ok=True)
