"""A real container without Kubernetes: runc over a root made of this machine's programs, as a pod's would be."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import subprocess
import tempfile
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sandlot_controller.plan.containers import HOLDER_DIR  # commands do not see it

from images.holder import write
from tests.waiting import SECONDS, wait_until

NEEDS_RUNC = pytest.mark.skipif(shutil.which("runc") is None, reason="needs the program runc (package runc)")
# What a container runtime leaves to root when nobody asks for more.
CAPABILITIES = [
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
    "CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL",
    "CAP_AUDIT_WRITE",
]  # fmt: skip
REFUSED = [
    "add_key", "bpf", "clock_settime", "delete_module", "init_module", "kexec_load", "keyctl", "mount",
    "open_by_handle_at", "perf_event_open", "pivot_root", "reboot", "request_key", "settimeofday", "swapon",
    "umount2", "unshare", "userfaultfd",
]  # fmt: skip
FILTER = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64"],
    "syscalls": [{"names": REFUSED, "action": "SCMP_ACT_ERRNO"}],
}
NOT_ROOT = {"uid": 1234, "gid": 1234, "additionalGids": [1234, 77]}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BORROWED = ("/usr",)
LINKED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
WAITS = [f"{HOLDER_DIR}/holder"]


class Container:
    """One container that does nothing; `changes` are put over parts of its OCI config."""

    def __init__(
        self,
        *,
        user: dict[str, Any] | None = None,
        readonly: bool = False,
        only: str | None = None,
        seccomp: dict[str, Any] | None = None,
        process: dict[str, Any] | None = None,
        linux: dict[str, Any] | None = None,
    ) -> None:
        self.id = f"i-{uuid.uuid4().hex[:16]}"
        self.directory = Path(tempfile.mkdtemp(prefix="sandlot-container-"))
        self.directory.chmod(0o755)
        self.rootfs = self.directory / "rootfs"
        self.cgroup = f"/sandlot-test-{self.id}"
        self._runc = ["runc", "--root", str(self.directory / "state")]
        mounts = self._make_root(only)
        capabilities = dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES)
        self.config: dict[str, Any] = {
            "ociVersion": "1.0.2",
            "hostname": "contained",
            "root": {"path": str(self.rootfs), "readonly": readonly},
            "process": {
                "terminal": False, "user": user or {"uid": 0, "gid": 0, "additionalGids": [0, 10]}, "args": WAITS,
                "cwd": "/work", "env": [f"PATH={PATH}", "FROM_IMAGE=yes", f"SANDLOT_TARGET={self.id}"],
                "capabilities": capabilities, "noNewPrivileges": False,
                "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 4000, "soft": 4000},
                            {"type": "RLIMIT_MSGQUEUE", "hard": 800000, "soft": 400000},
                            {"type": "RLIMIT_CORE", "hard": 0, "soft": 0}],
                "oomScoreAdj": 300, **(process or {}),
            },
            "mounts": [*mounts, *_usual_mounts()],
            "linux": {
                "cgroupsPath": self.cgroup,
                "namespaces": [{"type": kind} for kind in ("mount", "uts", "ipc", "network", "cgroup")],
                "resources": {
                    "memory": {"limit": 512 << 20}, "pids": {"limit": 400},
                    "devices": [{"allow": False, "access": "rwm"},
                                {"allow": True, "type": "c", "major": 1, "access": "rwm"},
                                {"allow": True, "type": "c", "major": 5, "access": "rwm"},
                                {"allow": True, "type": "c", "major": 136, "access": "rwm"}],
                },
                "devices": [{"path": "/dev/extra/one", "type": "c", "major": 1, "minor": 5, "fileMode": 0o666}],
                "maskedPaths": ["/proc/kcore"], "readonlyPaths": ["/proc/sys"], **(linux or {}),
            },
        }  # fmt: skip
        if seccomp is not None:
            self.config["linux"]["seccomp"] = seccomp
        (self.directory / "config.json").write_text(json.dumps(self.config))
        self.pid = 0

    def _make_root(self, only: str | None) -> list[dict[str, Any]]:
        """`only`: the one program that it has, in place of the machine's."""
        for name in ("etc", "proc", "sys", "dev", "work", "root", "home/user", "volume"):
            (self.rootfs / name).mkdir(parents=True, exist_ok=True)
        (self.rootfs / "tmp").mkdir()
        (self.rootfs / "tmp").chmod(0o1777)
        os.chown(self.rootfs / "home/user", 1234, 1234)
        (self.rootfs / "etc/passwd").write_text(
            "root:x:0:0::/root:/bin/sh\nuser:x:1234:1234::/home/user:/bin/sh\n"
        )
        (self.rootfs / "etc/group").write_text("root:x:0:\nuser:x:1234:\n")
        if only is not None:
            install(self.rootfs, only)
            return [holder(self.directory / "holder")]
        for name in LINKED:
            if Path("/", name).is_symlink():
                (self.rootfs / name).symlink_to(os.readlink(f"/{name}"))
        mounts = []
        for path in BORROWED:
            (self.rootfs / path.lstrip("/")).mkdir(parents=True)
            mounts.append(
                {"destination": path, "source": path, "type": "bind", "options": ["rbind", "ro"]}
            )  # fmt: skip
        mounts += [*given_files(self.directory / "given"), holder(self.directory / "holder")]
        (self.directory / "volume").mkdir()
        (self.directory / "volume").chmod(0o777)
        source = str(self.directory / "volume")
        mounts.append({"destination": "/volume", "source": source, "type": "bind", "options": ["bind", "rw"]})
        return mounts

    def start(self) -> Container:
        """Run it; it has stopped itself when this returns."""
        subprocess.run(
            [*self._runc, "run", "--detach", "--bundle", str(self.directory), self.id],
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=SECONDS,
        )  # fmt: skip
        state = subprocess.run(
            [*self._runc, "state", self.id], check=True, capture_output=True, timeout=SECONDS
        )
        self.pid = json.loads(state.stdout)["pid"]
        wait_until(lambda: self.status()["State"][0] == "T", pause=0.01)
        return self

    def status(self) -> dict[str, str]:
        """/proc/PID/status of its first process."""
        return parse_status(Path(f"/proc/{self.pid}/status").read_text())

    def exec(self, *argv: str, user: str | None = None) -> str:
        """What a command that the runtime starts in it says."""
        extra = ["--user", user] if user else []
        done = subprocess.run(
            [*self._runc, "exec", *extra, self.id, *argv],
            check=True,
            capture_output=True,
            timeout=SECONDS,
            text=True,
        )
        return done.stdout

    def offer_first_process(self) -> None:
        """The kernel ends it first when the container is out of memory."""
        Path(f"/proc/{self.pid}/oom_score_adj").write_text("1000")

    def kill(self) -> None:
        """End its first process."""
        subprocess.run([*self._runc, "kill", self.id, "KILL"], check=True, timeout=SECONDS)

    def close(self) -> None:
        """Take it away with all that belongs to it."""
        subprocess.run([*self._runc, "delete", "--force", self.id], capture_output=True, timeout=SECONDS)
        top = Path("/sys/fs/cgroup")
        for group in [*top.glob(self.cgroup.lstrip("/")), *top.glob(f"*{self.cgroup}")]:  # of v2, of v1
            for below in [*sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True), group]:
                remove_group(below)
        shutil.rmtree(self.directory)


def given_files(directory: Path, *, name_server: str = "192.0.2.53") -> list[dict[str, Any]]:
    """Mounts of files that may be written to, and that all containers of a pod have, as a kubelet makes them."""
    directory.mkdir(exist_ok=True)
    mounts = []
    for name, text in (("hosts", "127.0.0.1\tlocalhost\n"), ("hostname", "contained\n"),
                       ("resolv.conf", f"nameserver {name_server}\n")):  # fmt: skip
        path = directory / name
        if not path.exists():
            path.write_text(text)
        mounts.append(
            {"destination": f"/etc/{name}", "source": str(path), "type": "bind", "options": ["rbind", "rw"]}
        )
    return mounts


def holder(directory: Path) -> dict[str, Any]:
    """The mount that the container's first process is in."""
    write(directory / "holder", platform.machine())
    options = ["rbind", "ro", "nosuid", "nodev"]
    return {"destination": HOLDER_DIR, "source": str(directory), "type": "bind", "options": options}


def _usual_mounts() -> list[dict[str, Any]]:
    quiet = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": quiet},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
         "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*quiet, "mode=1777", "size=8m"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*quiet, "ro"]},
    ]  # fmt: skip


def install(root: Path, program: str) -> None:
    """Copy a program of this machine and its libraries into a root."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for file in [program, *(part for part in listing.split() if part.startswith("/"))]:
        target = root / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def parse_status(text: str) -> dict[str, str]:
    """The lines of /proc/PID/status by their names."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def remove_group(group: Path) -> None:
    """Waits for processes in it that were killed."""
    wait_until(partial(_removed, group), what=f"{group} has no process")


def _removed(group: Path) -> bool:
    """False while a process that was killed is still on its way out."""
    try:
        group.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
