"""A sandbox in a real container of runc's: an op is bound by exactly what binds a process of the container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.server.egress.programs import programs

from tests.executor.conftest import Make
from tests.executor.container import FILTER, HOLDER_DIR, Container, parse_status
from tests.executor.driver import Command, Driver, Refused
from tests.netlink import network_at

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="needs the program runc (package runc)"),
]

# What a process says of itself, not of what binds it.
OWN = (
    "Name", "State", "Tgid", "Ngid", "Pid", "PPid", "NStgid", "NSpid", "NSpgid", "NSsid", "FDSize", "SigQ",
    "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches",
)  # fmt: skip
SIZES = ("Vm", "Rss")
NOBODY_SPECIAL = {"uid": 1234, "gid": 1234, "additionalGids": [1234, 77]}
NOTHING = {kind: [] for kind in ("bounding", "effective", "permitted")}
PROFILES = Path("/usr/share/containers/seccomp.json")

Start = Callable[..., Container]


@pytest.fixture
def container(machine: Any) -> Iterator[Start]:
    """Starts containers and takes them away."""
    made: list[Container] = []

    def start(**options: Any) -> Container:
        box = Container(**options)
        made.append(box)
        return box.start()

    yield start
    for box in made:
        box.close()


@pytest.fixture
def enter(make: Make) -> Callable[..., Driver]:
    """Makes the sandbox in a container."""

    def start(box: Container, **arguments: Any) -> Driver:
        root = {"upper": str(box.directory / "store"), "mask": [HOLDER_DIR], **arguments.pop("root", {})}
        given = {"target": box.id, "root": root, "limits": {}, "cgroup_parent": None, **arguments}
        return make(**given)

    return start


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
    "not root": {"user": NOBODY_SPECIAL, "seccomp": FILTER},
    "not root, no new privileges": {"user": NOBODY_SPECIAL, "seccomp": FILTER, "process": {"noNewPrivileges": True}},
    "no capabilities": {"process": {"capabilities": NOTHING, "noNewPrivileges": True}},
    "read-only root": {"readonly": True, "seccomp": FILTER},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_line_differs(container: Start, enter: Callable[..., Driver], variant: str) -> None:
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
            assert ended.stdout.decode() == theirs
    label = "cat /proc/self/attr/current 2>&1; readlink /proc/self/ns/net"
    assert driver.run(label).stdout.decode() == box.exec("/bin/sh", "-c", label)
    notes = [note for note in driver.ready["notes"] if "confinement" in note]
    assert notes == []


@pytest.mark.skipif(not PROFILES.exists(), reason="needs the containers' default seccomp profile")
def test_a_filter_that_allows_only_what_is_known(container: Start, enter: Callable[..., Driver]) -> None:
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
    container: Start, enter: Callable[..., Driver], seccomp: dict[str, Any] | None, said: str
) -> None:
    box = container(seccomp=seccomp)
    assert box.exec(*USER_NAMESPACE) == said
    assert enter(box).run(USER_NAMESPACE).stdout.decode() == said


def test_ops_live_below_the_containers_own_groups(container: Start, enter: Callable[..., Driver]) -> None:
    box = container()
    driver = enter(box, limits={"memory": 64 << 20, "pids": 50})
    runner = driver.runner()
    command = runner.start("echo up; read never", stdin=True)
    assert isinstance(command, Command)
    command.read_until(b"up")
    theirs = dict(line.split(":")[1:] for line in Path(f"/proc/{box.pid}/cgroup").read_text().splitlines())
    outside = [pid for pid in descendants(driver) if Path(f"/proc/{pid}/comm").read_text() == "bash\n"]
    assert len(outside) == 1
    groups = dict(line.split(":")[1:] for line in Path(f"/proc/{outside[0]}/cgroup").read_text().splitlines())
    assert set(groups) == set(theirs)
    for controllers, path in groups.items():
        where = theirs[controllers]
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
def test_what_it_may_send_can_change_while_it_runs(container: Start, enter: Callable[..., Driver]) -> None:
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


def descendants(driver: Driver) -> list[int]:
    from tests.executor.driver import processes_below

    return processes_below(driver.process.pid)


def test_an_image_whose_user_is_not_root(container: Start, enter: Callable[..., Driver]) -> None:
    driver = enter(container(user=NOBODY_SPECIAL))
    assert (
        driver.run("id -u; id -G; echo $HOME; echo x > $HOME/made").stdout == b"1234\n1234 77\n/home/user\n"
    )
    driver.write("/home/user/sent", b"sent")
    driver.ask("file", op="mkdir", path="/tmp/a/b")
    for path in ("/home/user/sent", "/tmp/a", "/tmp/a/b", "/home/user/made"):
        found = driver.ask("file", op="stat", path=path)["stat"]
        assert (found["uid"], found["gid"]) == (1234, 1234), path
    assert driver.run("echo more >> /home/user/sent; rm -r /tmp/a")["exit_code"] == 0
    assert driver.run("echo x > /etc/passwd")["exit_code"] != 0
    assert driver.run("id -u; id -G; echo $HOME", user="root").stdout == b"0\n0\n/root\n"


def test_an_image_of_a_shell_and_nothing_else(container: Start, enter: Callable[..., Driver]) -> None:
    driver = enter(container(only="/bin/sh", readonly=True))
    assert driver.ready["shell"] == "/bin/sh"
    assert (
        driver.run("read -r line < /etc/passwd; echo $line; echo new > /new").stdout
        == b"root:x:0:0::/root:/bin/sh\n"
    )
    assert driver.read("/new") == b"new\n"


def test_an_image_without_a_shell(container: Start, enter: Callable[..., Driver]) -> None:
    driver = enter(container(only="/bin/cat"))
    assert driver.ready["shell"] is None
    assert driver.run(["/bin/cat", "/etc/group"]).stdout == b"root:x:0:\nuser:x:1234:\n"
    answer = driver.runner().start("cat /etc/group")
    assert isinstance(answer, dict)
    assert (answer["failed"], answer["field"]) == ("start_failed", "shell")
    assert driver.ask("reset")["equal"]


def test_no_program_of_the_image_runs_beside_the_commands(
    container: Start, enter: Callable[..., Driver]
) -> None:
    """An image's own shell would, as the container's first process; commands see nothing of what does."""
    box = container()
    driver = enter(box)
    of_the_container = [
        os.readlink(path / "exe")
        for path in Path("/proc").glob("[0-9]*")
        if same_mounts(path, Path(f"/proc/{box.pid}"))
    ]
    assert of_the_container == [f"{HOLDER_DIR}/holder"]
    seen = driver.run("ls -a / /.sandlot; cat /proc/mounts").stdout
    assert b"sandlot/holder" not in seen
    assert b".sandlot" not in seen
    assert (
        driver.run("mkdir /.sandlot && echo mine > /.sandlot/holder && cat /.sandlot/holder").stdout
        == b"mine\n"
    )
    assert driver.ask("reset")["equal"]
    assert driver.run("cat /.sandlot/holder")["exit_code"] == 1


def same_mounts(one: Path, other: Path) -> bool:
    try:
        return os.stat(one / "ns/mnt").st_ino == os.stat(other / "ns/mnt").st_ino
    except OSError:
        return False


def test_a_read_only_root_takes_changes_beside_it(container: Start, enter: Callable[..., Driver]) -> None:
    box = container(readonly=True)
    driver = enter(box)
    assert driver.run("echo x > /work/file; echo y > /volume/kept; echo no > /usr/never")["exit_code"] != 0
    for path, text in (("work/file", "x\n"), ("volume/kept", "y\n")):
        assert driver.read(f"/{path}") == text.encode()
        assert not (box.rootfs / path).exists()
        assert [part.read_text() for part in (box.directory / "store").glob(f"*/upper/{path}")] == [text]
    assert list((box.directory / "volume").iterdir()) == []


def test_what_the_container_gives_every_process(container: Start, enter: Callable[..., Driver]) -> None:
    box = container(process={"env": ["PATH=/usr/bin:/bin", "SANDLOT_TARGET=x", "FROM_IMAGE=yes"]})
    with pytest.raises(Refused) as error:
        enter(box, target=None, target_pid=2**22 + 1)
    assert error.value.code == "setup"
    driver = enter(box, target=None, target_pid=box.pid)
    assert driver.ready["env"] == {"PATH": "/usr/bin:/bin", "FROM_IMAGE": "yes"}
    assert driver.ready["workdir"] == "/work"
    assert driver.run("head -c 3 /dev/extra/one | wc -c; stat -c %t,%T /dev/extra/one").stdout == b"3\n1,5\n"


def test_reset_network_and_the_volume(container: Start, enter: Callable[..., Driver]) -> None:
    box = container()
    driver = enter(box)
    store = box.directory / "store"
    driver.run("echo dirt > /dirt; mkdir -p /deep/er; echo x > /deep/er/file")
    proof = driver.ask("reset", network="none")
    assert proof["equal"], proof
    assert driver.run("test -e /dirt")["exit_code"] == 1
    assert driver.run("tail -n +3 /proc/net/dev | cut -d: -f1").stdout.split() == [b"lo"]
    driver.run("echo kept > /kept")
    driver.ask("apply", network="full")
    assert driver.read("/kept") == b"kept\n"
    assert (
        box.exec("readlink", "/proc/self/ns/net") == driver.run("readlink /proc/self/ns/net").stdout.decode()
    )
    driver.ask("end")
    parts = {path.name for path in store.iterdir()}
    assert "2" in parts
    again = enter(box, root={"resume": True})
    assert again.read("/kept") == b"kept\n"
    again.ask("end")
    fresh = enter(box)
    assert fresh.run("test -e /kept")["exit_code"] == 1


def test_without_a_volume_changes_are_in_memory(container: Start, enter: Callable[..., Driver]) -> None:
    box = container()
    driver = enter(box, root={"upper": "/proc/no/such"})
    assert driver.ready["overlay"]
    assert any("in memory" in note for note in driver.ready["notes"])
    driver.run("echo x > /here")
    assert driver.ask("reset")["equal"]


def test_the_end_of_the_container_is_told(container: Start, enter: Callable[..., Driver]) -> None:
    box = container()
    driver = enter(box)
    box.kill()
    assert driver.wait_event()["event"] == "target_lost"


FIND = """
import sys
from sandlot_sidecar.executor import target
from sandlot_sidecar.executor.errors import SetupError
from sandlot_sidecar.executor.namespaces import Home
try:
    print(target.find(Home(), sys.argv[1], patience=0.3))
except SetupError as error:
    print(error.message)
"""


def find(instance_id: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FIND, instance_id], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_container_is_found_by_its_mark(container: Start, enter: Callable[..., Driver]) -> None:
    assert "SANDLOT_TARGET=i-nobody" in find("i-nobody")
    box = container()
    driver = enter(box)
    liar = driver.runner().start("echo up; read never", env={"SANDLOT_TARGET": box.id}, stdin=True)
    assert isinstance(liar, Command)
    liar.read_until(b"up")
    assert find(box.id) == str(box.pid)
    os.close(liar.stdin or -1)
    liar.stdin = None
    liar.wait()


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
        open(name, 'w').close()
        print('WRITABLE', name)
    except OSError:
        pass
"""


@pytest.mark.parametrize("variant", ["plain", "filtered", "not root"])
def test_root_inside_reaches_nothing_outside(
    container: Start, enter: Callable[..., Driver], variant: str
) -> None:
    box = container(**VARIANTS[variant])
    driver = enter(box)
    driver.runner()
    pids = [box.pid, os.getpid(), driver.process.pid, *descendants(driver)]
    ended = driver.run(["python3", "-c", ATTACK.format(pids=pids)], user="root")
    assert ended.stdout.decode().split("\n") == ["seen 2 1", ""], (ended.stdout, ended.stderr)
    assert driver.run("echo usable").stdout == b"usable\n"
    assert box.status()["State"].startswith("T")
