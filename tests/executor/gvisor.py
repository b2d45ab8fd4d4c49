"""A pod of gVisor's without Kubernetes: runsc with a sandbox, a target and a place for the sidecar's container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
import sandlot_contract
import sandlot_sidecar

from tests.executor.container import CAPABILITIES, LINKED, PATH, WAITS, given_files, holder, remove_group
from tests.leaks import GVISOR_PREFIX
from tests.waiting import SECONDS

# A bomb in gVisor is memory of one process here: without a limit of its own it would take the machine's.
MOST_MEMORY = 3 << 30
CACHE = Path(os.environ.get("SANDLOT_CLUSTER_BIN") or Path.home() / ".cache/sandlot-cluster/bin")
# What gVisor knows of; its kernel is the pod's own, so they are worth nothing outside.
ALL = [
    *CAPABILITIES, "CAP_DAC_READ_SEARCH", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_NET_ADMIN", "CAP_SYS_ADMIN",
    "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE", "CAP_SYS_NICE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_SYS_RAWIO",
]  # fmt: skip
# The pod's PID 1 reaps what dies in the pod, as Kubernetes' pause does: the shell waits for all of its children.
REAPS = ["/bin/sh", "-c", "sleep 100000 & wait"]
VOLUME, VOLUME_POINT = "files", "/run/sandlot-files"
KIND, SANDBOX_ID = "io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-id"


def find_runsc() -> str | None:
    """runsc of the test cluster, else one on the path."""
    cached = CACHE / "runsc"
    return str(cached) if cached.exists() else shutil.which("runsc")


NEEDS_RUNSC = (
    pytest.mark.programs,
    pytest.mark.skipif(
        find_runsc() is None, reason="needs runsc of the test cluster (`make cluster` builds it)"
    ),
)


_V1 = Path("/sys/fs/cgroup/memory")
_PERIOD = 100_000  # microseconds of CPU time, as the kubelet has it


def _groups(name: str, *, memory: int, cores: float | None) -> list[Path]:
    """As the kubelet gives every pod, under cgroup v1 or v2; that of memory first."""
    if not _V1.is_dir():
        group = Path("/sys/fs/cgroup", name)
        group.mkdir()
        (group / "memory.max").write_text(str(memory))
        if cores is not None:
            (group / "cpu.max").write_text(f"{int(cores * _PERIOD)} {_PERIOD}")
        return [group]
    groups = [_V1 / name]
    groups[0].mkdir()
    (groups[0] / "memory.limit_in_bytes").write_text(str(memory))
    if cores is not None:
        groups.append(Path("/sys/fs/cgroup/cpu", name))
        groups[1].mkdir()
        (groups[1] / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (groups[1] / "cpu.cfs_quota_us").write_text(str(int(cores * _PERIOD)))
    return groups


class GvisorPod:
    """The pod: `start` makes the sandbox and the target, `command` runs the sidecar's container to its end."""

    def __init__(
        self,
        *,
        user: dict[str, Any] | None = None,
        readonly: bool = False,
        network: str | None = None,
        net_raw: bool = True,
        name_server: str | None = None,
        volume: int | None = None,
        memory: int = MOST_MEMORY,
        cores: float | None = None,
        first: list[str] = REAPS,
    ) -> None:
        """`network`: a network namespace by its path, without one it has only a loopback.

        `memory`, `cores`: the pod's own limits, those of its containers together. `first`: the command of its PID 1.

        `volume`: bytes of the sidecar's volume that gVisor keeps itself, as it does an emptyDir with our annotations.
        """
        self.id = f"i-{uuid.uuid4().hex[:16]}"
        self.directory = Path(tempfile.mkdtemp(prefix=GVISOR_PREFIX, dir="/tmp"))
        self.directory.chmod(0o755)
        self._user = user or {"uid": 0, "gid": 0}
        self._readonly = readonly
        self._pids_of = ""
        self._groups = _groups(f"{GVISOR_PREFIX}{self.id}", memory=memory, cores=cores)
        self._runsc = [
            find_runsc() or "runsc", "--root", str(self.directory / "state"), "--platform=systrap",
            "--ignore-cgroups", f"--network={'sandbox' if network else 'none'}", "--host-uds=all",
            f"--net-raw={str(net_raw).lower()}",
        ]  # fmt: skip
        self._first = first
        self._network = network
        self._name_server = name_server
        self.volume = volume
        (self.directory / "volume").mkdir()
        # Written once: to write a program again that runs cuts its pages off, and it ends by SIGBUS.
        self._holder = holder(self.directory / "holder")

    def start(self) -> GvisorPod:
        """Start the sandbox and the container that does nothing."""
        self._write("pause", args=self._first, env=[f"PATH={PATH}"])
        self._run("pause")
        state = subprocess.run(
            [*self._runsc, "state", self._name("pause")], check=True, capture_output=True, timeout=SECONDS
        )
        self._pids_of = f"/proc/{json.loads(state.stdout)['pid']}/ns/pid"
        env = [f"PATH={PATH}", "FROM_IMAGE=yes", f"SANDLOT_TARGET={self.id}"]
        self._write(
            "target",
            args=WAITS,
            env=env,
            user=self._user,
            cwd="/work",
            readonly=self._readonly,
            capabilities=[name for name in CAPABILITIES if name != "CAP_NET_RAW"],
        )
        self._run("target")
        return self

    def command(self, *, argv: list[str], env: dict[str, str], shared: str) -> list[str]:
        """What to start on this machine to run the sidecar's container; it sees `shared` under the same path."""
        sources = [str(Path(package.__file__).parents[1]) for package in (sandlot_contract, sandlot_sidecar)]
        borrowed = [sys.base_prefix, sys.prefix, *sources, shared]
        listing = [f"{name}={value}" for name, value in env.items()]
        self._write("sidecar", args=argv, env=listing, capabilities=ALL, borrowed=borrowed)
        return [
            *self._bound(),
            *self._runsc,
            "run",
            "--bundle",
            str(self.directory / "sidecar"),
            self._name("sidecar"),
        ]

    def close(self) -> None:
        """Take everything away."""
        for name in ("sidecar", "target", "pause"):
            subprocess.run(
                [*self._runsc, "delete", "--force", self._name(name)], capture_output=True, timeout=SECONDS
            )
        # Where runsc has no network it leaves a namespace behind.
        subprocess.run(["umount", str(self.directory / "state/null-netns")], capture_output=True)
        shutil.rmtree(self.directory)
        for group in self._groups:
            remove_group(group)

    @property
    def memory(self) -> int:
        """Bytes that all of it holds now."""
        return self._number("memory.usage_in_bytes", "memory.current")

    @property
    def peak_memory(self) -> int:
        """The most that it has held."""
        return self._number("memory.max_usage_in_bytes", "memory.peak")

    @property
    def kills(self) -> int:
        """Processes that the kernel has killed for want of memory. The peak says less: it counts files' pages, which go
        when others need the room.
        """
        path = self._groups[0] / "memory.oom_control"
        text = (path if path.exists() else self._groups[0] / "memory.events").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))

    @property
    def killed(self) -> str:
        """What the kernel's memory group says of kills for want of memory, to tell them from crashes."""
        found = [
            (self._groups[0] / name).read_text().split("\n")
            for name in ("memory.oom_control", "memory.events")
            if (self._groups[0] / name).exists()
        ]
        return f"peak {self.peak_memory >> 20} MiB, {found}"

    def target_end(self) -> str:
        """How the container that does nothing has ended, with its log; for one that runs, that it did not."""
        log = (self.directory / "target.log").read_text()
        try:
            waited = subprocess.run(
                [*self._runsc, "wait", self._name("target")], capture_output=True, text=True, timeout=20
            )
        except subprocess.TimeoutExpired:
            return f"the target runs; {log}"
        return f"the target has ended: {waited.stdout}{waited.stderr}; {log}"

    def _number(self, *names: str) -> int:
        group = self._groups[0]
        return next(int((group / name).read_text()) for name in names if (group / name).exists())

    def _bound(self) -> list[str]:
        joins = "".join(f"echo $$ > {group}/cgroup.procs && " for group in self._groups)
        return ["/bin/sh", "-c", f'{joins}exec "$@"', "sh"]

    def _name(self, name: str) -> str:
        return f"{name}-{self.id}"

    def _run(self, name: str) -> None:
        command = [*self._runsc, "run", "--detach", "--bundle", str(self.directory / name), self._name(name)]
        with (self.directory / f"{name}.log").open("wb") as log:
            subprocess.run(
                [*self._bound(), *command],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=120,
            )

    def _write(
        self,
        name: str,
        *,
        args: list[str],
        env: list[str],
        user: dict[str, Any] | None = None,
        cwd: str = "/",
        readonly: bool = False,
        capabilities: list[str] = CAPABILITIES,
        borrowed: list[str] | None = None,
    ) -> None:
        root = self.directory / name / "rootfs"
        paths = ["/usr", *(borrowed or [])]
        for made in (
            "etc",
            "proc",
            "sys",
            "dev",
            "work",
            "root",
            "tmp",
            "home/user",
            *(p[1:] for p in paths),
        ):
            (root / made).mkdir(parents=True, exist_ok=True)
        (root / "tmp").chmod(0o1777)
        os.chown(root / "home/user", 1234, 1234)
        (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1234:1234::/home/user:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\nuser:x:1234:\n")
        for link in LINKED:
            if Path("/", link).is_symlink():
                (root / link).symlink_to(os.readlink(f"/{link}"))
        annotations = (
            {KIND: "container", SANDBOX_ID: self._name("pause")} if self._pids_of else {KIND: "sandbox"}
        )
        pids = {"type": "pid", **({"path": self._pids_of} if self._pids_of else {})}
        kinds = [{"type": kind} for kind in ("mount", "uts", "ipc")]
        kinds.append({"type": "network", **({"path": self._network} if self._network else {})})
        if self.volume is not None and not self._pids_of:
            hint = {
                "source": str(self.directory / "volume"),
                "type": "tmpfs",
                "share": "pod",
                "options": f"rw,size={self.volume}",
            }
            annotations |= {f"dev.gvisor.spec.mount.{VOLUME}.{field}": value for field, value in hint.items()}
        mounts: list[dict[str, Any]]
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"},
                  {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                  {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]}]  # fmt: skip
        # One set for all its containers, which each can write to.
        mounts += given_files(self.directory / "given", name_server=self._name_server or "192.0.2.53")
        mounts.append(self._holder)
        for path in paths:
            options = ["rbind", "rw" if borrowed and path == borrowed[-1] else "ro"]
            mounts.append({"destination": path, "source": path, "type": "bind", "options": options})
        if self.volume is not None and name == "sidecar":
            (root / VOLUME_POINT.lstrip("/")).mkdir(parents=True)
            source = str(self.directory / "volume")
            mounts.append(
                {"destination": VOLUME_POINT, "source": source, "type": "bind", "options": ["rbind", "rw"]}
            )  # type: ignore[dict-item]
        config = {
            "ociVersion": "1.0.2", "hostname": "sandbox",
            "root": {"path": str(root), "readonly": readonly},
            "process": {
                "user": user or {"uid": 0, "gid": 0}, "args": args, "env": env, "cwd": cwd,
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            },
            "mounts": mounts, "annotations": annotations, "linux": {"namespaces": [*kinds, pids]},
        }  # fmt: skip
        (root.parent / "config.json").write_text(json.dumps(config))
