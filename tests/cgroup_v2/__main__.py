"""Runs tests in a virtual machine with cgroup v2 alone, on a machine that may have v1.

Its root is this machine's, read-only, with changes in memory. Its processor is emulated, about ten times as slow, unless SANDLOT_VM_ACCELERATOR says `kvm`.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .kernel import Kernel, find_kernel

ROOT = Path(__file__).parents[2]
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static"}
# The tests whose code differs between the versions.
TESTS = (
    "tests/executor/test_target_v2.py",
    "tests/executor/test_target.py",
    "tests/executor/test_target_life.py",
    "tests/executor/test_limits.py",
    "tests/executor/test_kill.py",
    "tests/local/test_cgroups.py",
    "tests/local/test_rootless.py",
    # Measures seconds of a processor, and an emulated one needs most of them to start Python.
    "--deselect=tests/executor/test_limits.py::test_half_a_processor",
)
# `kvm` is not the default, since a machine that is itself virtual may have the device without being able to use it.
ACCELERATOR = os.environ.get("SANDLOT_VM_ACCELERATOR", "tcg")
INIT = Path(__file__).with_name("init.sh")
DONE = "tests ended with "


def main(arguments: list[str]) -> int:
    """Boot the machine, run pytest with the arguments in it, and return its exit status."""
    if platform.machine() != "x86_64":
        sys.exit("tests.cgroup_v2: this machine is not x86_64, for which the virtual machine is")
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        sys.exit(f"tests.cgroup_v2: programs are missing: apt-get install {' '.join(missing)}")
    kernel = find_kernel()
    with tempfile.TemporaryDirectory(prefix="sandlot-cgroup-v2-") as directory:
        initrd = make_initrd(Path(directory), kernel, arguments)
        return boot(kernel, initrd)


def make_initrd(directory: Path, kernel: Kernel, arguments: list[str]) -> Path:
    """Pack the first root: busybox, the kernel's modules for the second, and the script that goes there."""
    tree = directory / "tree"
    for name in ("bin", "modules", "proc", "sys", "dev", "lower", "changes", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), tree / "bin/busybox")
    shutil.copy(INIT, tree / "init")
    names = kernel.copy_modules(tree / "modules")
    (tree / "modules/order").write_text("".join(f"{name}\n" for name in names))
    (tree / "arguments").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in arguments))
    (tree / "place").write_text(str(ROOT))
    files = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    packed = subprocess.run(
        ["busybox", "cpio", "-o", "-H", "newc"],
        cwd=tree, input="\n".join(files).encode(), capture_output=True, check=True,
    ).stdout  # fmt: skip
    (directory / "initrd").write_bytes(packed)
    return directory / "initrd"


def boot(kernel: Kernel, initrd: Path) -> int:
    """Run the machine until it powers off, show its console, and return the tests' exit status."""
    machine = subprocess.Popen(
        [
            "qemu-system-x86_64", "-M", "q35", "-accel", ACCELERATOR, "-cpu", "max", "-smp", "1",
            "-m", "2048", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
            "-kernel", str(kernel.image), "-initrd", str(initrd),
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off",
            "-virtfs", "local,path=/,mount_tag=machine,security_model=none,readonly=on,multidevs=remap",
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip
    code = 1
    assert machine.stdout is not None
    try:
        for line in machine.stdout:
            print(line, end="", flush=True)
            if line.startswith(DONE):
                code = int(line.removeprefix(DONE))
    finally:
        machine.terminate()
        machine.wait()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(TESTS)))
