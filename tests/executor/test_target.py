"""A sandbox in a real container of runc's: an op is bound by exactly what binds a process of the container."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.server.egress.programs import programs

from tests.executor.conftest import Enter, Start, needs_root
from tests.executor.container import FILTER, NEEDS_RUNC, NOT_ROOT, parse_status
from tests.executor.driver import Command
from tests.executor.processes import processes_below
from tests.netlink import network_at

pytestmark = [pytest.mark.root, needs_root, NEEDS_RUNC]

# What a process says of itself, not of what binds it.
OWN = (
    "Name", "State", "Tgid", "Ngid", "Pid", "PPid", "NStgid", "NSpid", "NSpgid", "NSsid", "FDSize", "SigQ",
    "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches",
)  # fmt: skip
SIZES = ("Vm", "Rss")
NOTHING = {kind: [] for kind in ("bounding", "effective", "permitted")}
PROFILES = Path("/usr/share/containers/seccomp.json")


def bounds(text: str) -> dict[str, str]:
    return {
        name: value
        for name, value in parse_status(text).items()
        if name not in OWN and not name.startswith(SIZES)
    }


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "filtered": {"seccomp": FILTER},
    "no new privileges": {"seccomp": FILTER, "process": {"noNewPrivileges": True}},
    "not root": {"user": NOT_ROOT, "seccomp": FILTER},
    "not root, no new privileges": {"user": NOT_ROOT, "seccomp": FILTER, "process": {"noNewPrivileges": True}},
    "no capabilities": {"process": {"capabilities": NOTHING, "noNewPrivileges": True}},
    "read-only root": {"readonly": True, "seccomp": FILTER},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_line_differs(container: Start, enter: Enter, variant: str) -> None:
    box = container(**VARIANTS[variant])
    driver = enter(box)
    assert driver.ready["overlay"]
    for what in ("status", "cgroup", "limits", "oom_score_adj"):
        theirs = box.exec("/bin/sh", "-c", f"exec cat /proc/self/{what}")
        ended = driver.run(f"exec cat /proc/self/{what}", cwd="/work")
        assert ended["exit_code"] == 0, ended.stderr
        if what == "status":
            assert bounds(ended.stdout.decode()) == bounds(theirs)
            assert bounds(theirs)["CapBnd"] == bounds(Path(f"/proc/{box.pid}/status").read_text())["CapBnd"]
        else:
            # Under v2 the container's own processes are in a group beside the sandbox's.
            assert ended.stdout.decode() == theirs.replace("0::/container\n", "0::/\n")
    label = "cat /proc/self/attr/current 2>&1; readlink /proc/self/ns/net"
    assert driver.run(label).stdout.decode() == box.exec("/bin/sh", "-c", label)
    notes = [note for note in driver.ready["notes"] if "confinement" in note]
    assert notes == []


@pytest.mark.skipif(not PROFILES.exists(), reason="needs the containers' default seccomp profile")
def test_a_filter_that_allows_only_what_is_known(container: Start, enter: Enter) -> None:
    """The default profile of podman: its allow-list leaves a runner all that it needs."""
    default = json.loads(PROFILES.read_text())
    rules = [
        {"names": rule["names"], "action": rule["action"], "args": rule.get("args") or []}
        for rule in default["syscalls"]
        if set(rule.get("includes") or {}) <= {"arches"}
        and "amd64" in (rule.get("includes") or {"arches": ["amd64"]})["arches"]
        and not set((rule.get("excludes") or {}).get("arches", ())) & {"amd64"}
    ]  # fmt: skip
    profile = {"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": rules}
    box = container(seccomp=profile)
    driver = enter(box)
    command = "exec cat /proc/self/status"
    assert bounds(driver.run(command).stdout.decode()) == bounds(box.exec("/bin/sh", "-c", command))
    terminal = driver.runner().start("tty; exit 3", pty={"cols": 80, "rows": 24})
    assert isinstance(terminal, Command)
    assert terminal.wait()["exit_code"] == 3


USER_NAMESPACE = ["python3", "-c", "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))"]


@pytest.mark.parametrize(("seccomp", "said"), [(FILTER, "-1\n"), (None, "0\n")])
def test_the_filter_is_the_containers(
    container: Start, enter: Enter, seccomp: dict[str, Any] | None, said: str
) -> None:
    box = container(seccomp=seccomp)
    assert box.exec(*USER_NAMESPACE) == said
    assert enter(box).run(USER_NAMESPACE).stdout.decode() == said


def test_ops_live_below_the_containers_own_groups(container: Start, enter: Enter) -> None:
    box = container()
    driver = enter(box, limits={"memory": 64 << 20, "pids": 50})
    runner = driver.runner()
    command = runner.start("echo up; read never", stdin=True)
    assert isinstance(command, Command)
    command.read_until(b"up")
    theirs = dict(line.split(":")[1:] for line in Path(f"/proc/{box.pid}/cgroup").read_text().splitlines())
    outside = [
        pid
        for pid in processes_below(driver.process.pid)
        if Path(f"/proc/{pid}/comm").read_text() == "bash\n"
    ]
    assert len(outside) == 1
    groups = dict(line.split(":")[1:] for line in Path(f"/proc/{outside[0]}/cgroup").read_text().splitlines())
    assert set(groups) == set(theirs)
    for controllers, path in groups.items():
        # Under v2 its processes are beside the sandbox's: a group with processes cannot limit the groups below it.
        where = theirs[controllers].removesuffix("/container")
        assert path == where or f"{path}/".startswith(f"{where}/sandlot/"), (controllers, path)
    os.close(command.stdin or -1)
    command.stdin = None
    command.wait()
    eater = driver.run(["python3", "-c", "x = b'x' * (200 << 20); print(len(x))"])
    assert eater["oom"]
    assert box.status()["State"].startswith("T")
    assert driver.run("echo usable").stdout == b"usable\n"


ASK = """
import errno, socket
with socket.socket() as s:
    try: s.connect(("198.18.3.4", 9))
    except OSError as e: print(errno.errorcode[e.errno])
"""


@pytest.mark.skipif(
    not any(Path(path, "cgroup.procs").exists() for path in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")),
    reason="needs control groups of version 2",
)
def test_what_it_may_send_can_change_while_it_runs(container: Start, enter: Enter) -> None:
    """To an address of the container's own network, where nobody listens: the kernel answers at once."""
    box = container()
    with network_at(Path(f"/proc/{box.pid}/ns/net")) as network:
        network.up("lo")
        network.add_address("lo", "198.18.3.4/32")
    driver = enter(box)
    asked = ["python3", "-c", ASK]
    assert driver.run(asked).stdout == b"ECONNREFUSED\n"
    there, somewhere = (198 << 24) + (18 << 16), (192 << 24) + (2 << 8)
    for rules, said in ([(there, 15, 0, 0)], "EPERM"), ([(somewhere, 24, 0, 0)], "ECONNREFUSED"):
        driver.ask("egress", programs=programs(allow=False, rules=rules, proxied={}))
        assert driver.run(asked).stdout.decode().strip() == said
        assert box.exec(*asked) == "ECONNREFUSED\n", "it binds who is not of the sandbox"
    driver.ask("egress", programs={})
    assert driver.run(asked).stdout == b"ECONNREFUSED\n"


ATTACK = r"""
import os, signal
outside = {pids!r}
seen = sorted(int(name) for name in os.listdir('/proc') if name.isdigit())
print('seen', len(seen), seen[0])
for pid in outside:
    try:
        os.kill(pid, 0)
        print('REACHED', pid)
    except ProcessLookupError:
        pass
for pid in [1, -1]:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
for path in ('/proc/1/environ', '/proc/1/mem', '/proc/1/root/etc', '/proc/1/fd', '/proc/1/cwd'):
    try:
        if path.endswith(('fd', 'etc', 'cwd')):
            print('LISTED', path, os.listdir(path)) if os.listdir(path) else None
        else:
            data = open(path, 'rb').read(4096)
            print('READ', path, data) if data else None
    except OSError:
        pass
try:
    os.mknod('/disk', 0o60600, os.makedev(254, 0))
    open('/disk', 'rb').read(1)
    print('DISK')
except OSError:
    pass
for name in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/kernel/uevent_helper'):
    try:
        with open(name, 'w') as file:
            if os.fstat(file.fileno()).st_rdev != os.makedev(1, 3):  # masked by /dev/null
                print('WRITABLE', name)
    except OSError:
        pass
"""


@pytest.mark.parametrize("variant", ["plain", "filtered", "not root"])
def test_root_inside_reaches_nothing_outside(container: Start, enter: Enter, variant: str) -> None:
    box = container(**VARIANTS[variant])
    driver = enter(box)
    driver.runner()
    pids = [box.pid, os.getpid(), driver.process.pid, *processes_below(driver.process.pid)]
    ended = driver.run(["python3", "-c", ATTACK.format(pids=pids)], user="root")
    assert ended.stdout.decode().split("\n") == ["seen 2 1", ""], (ended.stdout, ended.stderr)
    assert driver.run("echo usable").stdout == b"usable\n"
    assert box.status()["State"].startswith("T")
