"""An op is bound by what binds a process that `pods/exec` starts in the container: the same script tells the same."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sandlot import Client, Sandbox

from loadtests.cluster.pod_cpu import PodCpu
from tests.kubernetes.boxes import pod_name, pods_exec, resource_of, running_pod, warm
from tests.kubernetes.stack import IMAGE, Stack

# Everything a process can be told to be bound by, as it says itself.
SCRIPT = r"""
import json, os, resource, signal
def read(path):
    try:
        with open(path, errors='replace') as file:
            return file.read().rstrip('\n\0')
    except OSError as error:
        return error.strerror
OWN = {'Name', 'State', 'Tgid', 'Ngid', 'Pid', 'PPid', 'NStgid', 'NSpid', 'NSpgid', 'NSsid', 'FDSize', 'SigQ',
       'voluntary_ctxt_switches', 'nonvoluntary_ctxt_switches', 'untag_mask', 'x86_Thread_features',
       'x86_Thread_features_locked', 'HugetlbPages', 'CoreDumping', 'THP_enabled', 'TracerPid', 'RssAnon'}
facts = {}
for line in read('/proc/self/status').splitlines():
    name, _, value = line.partition(':')
    if name not in OWN and not name.startswith(('Vm', 'Rss')):
        facts['status ' + name] = ' '.join(value.split())
for line in read('/proc/self/limits').splitlines()[1:]:
    facts['limit ' + line[:26].strip()] = ' '.join(line[26:].split())
for line in read('/proc/self/cgroup').splitlines():
    number, names, path = line.split(':', 2)
    facts['cgroup ' + names] = path
for name in sorted(os.listdir('/proc/self/ns')):
    facts['namespace ' + name] = os.readlink('/proc/self/ns/' + name)
for name in ('attr/current', 'attr/apparmor/current', 'attr/exec', 'oom_score_adj', 'personality', 'coredump_filter',
             'timerslack_ns', 'loginuid', 'sessionid', 'uid_map', 'gid_map'):
    facts['file ' + name] = read('/proc/self/' + name)
for name, value in os.environ.items():
    facts['variable ' + name] = value
facts['uids'] = os.getresuid()
facts['gids'] = os.getresgid()
facts['groups'] = sorted(os.getgroups())
facts['cwd'] = os.getcwd()
facts['umask'] = oct(os.umask(0))
facts['nice'] = os.getpriority(os.PRIO_PROCESS, 0)
facts['scheduler'] = os.sched_getscheduler(0)
facts['affinity'] = sorted(os.sched_getaffinity(0))
facts['hostname'] = os.uname().nodename
facts['kernel'] = os.uname().release
facts['nproc'] = os.popen('nproc').read().strip()
facts['signals ignored'] = [number for number in range(1, 32) if number not in (9, 19)
                            and signal.getsignal(number) == signal.SIG_IGN]
for name in os.listdir('/dev'):
    facts['device ' + name] = 'there'
facts['read-only'] = bool(os.statvfs('/').f_flag & os.ST_RDONLY)
facts['interfaces'] = sorted(line.split(':')[0].strip() for line in read('/proc/net/dev').splitlines()[2:])
print(json.dumps(facts))
"""
COMMAND = ["python3", "-c", SCRIPT]


@dataclass(frozen=True)
class Allowed:
    """A difference that is meant: what an op has there, and why."""

    ours: str  # a pattern of the whole value
    why: str


THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON")
ALLOWED: dict[str, Allowed] = {
    "namespace mnt": Allowed(r"mnt:\[\d+\]", "its root is an overlay over the container's, so that it can be reset"),
    "namespace pid": Allowed(r"pid:\[\d+\]", "it sees neither the sidecar nor the pod's first process"),
    "namespace pid_for_children": Allowed(r"pid:\[\d+\]", "as above"),
    "namespace uts": Allowed(r"uts:\[\d+\]", "the name below"),
    "hostname": Allowed("sandbox", "the same in every sandbox: the pod's name is the infrastructure's"),
    "namespace ipc": Allowed(r"ipc:\[\d+\]", "System V memory and semaphores go with a reset"),
    "nproc": Allowed("1", "by OMP_NUM_THREADS: the limit, where the container sees the node's processors"),
    "limit Max processes": Allowed(r"(\d+) \1 processes", "under gVisor: its groups refuse only some of the forks above a limit"),
    "variable SANDLOT_TARGET": Allowed("None", "the mark by which the sidecar finds the container"),
    "variable SANDLOT_SANDBOX_ID": Allowed(r"sb-\w+", "so that code can tell where it runs"),
    "variable SANDLOT_OP": Allowed(r"\w+", "the op's own id: descendants are found by it where there is no cgroup"),
    "status Seccomp": Allowed("2", "under gVisor: what its kernel would let code do to its pod's packet filter and settings is refused"),
    "device core": Allowed("None", "a link to the kernel's memory, which neither can read"),
    "device mqueue": Allowed("there", "under gVisor too, where a container has none"),
    "device termination-log": Allowed("None", "a file of the node's for the container's last words"),
    "variable HOSTNAME": Allowed("None|sandbox", "the name above"),
    **{
        f"variable {name}": Allowed("1", "threads to start, by the limit of cpu")
        for name in (*(f"{each}_NUM_THREADS" for each in THREADS), "GOMAXPROCS", "PYTHON_CPU_COUNT")
    },
    **{
        f"cgroup {name}": Allowed(r"(.*/)?sandlot(/r[^/]*)?", "below the container's own: an op's processes are found by it")
        for name in ("memory", "pids", "cpu", "cpu,cpuacct", "cpuacct", "")
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def box(client: Client) -> Iterator[Sandbox]:
    with warm(client) as made:
        yield made


def told_by_op(box: Sandbox) -> dict[str, Any]:
    return json.loads(box.exec(COMMAND, timeout=60, check=True).stdout)


def test_what_differs_is_listed_with_its_reason(stack: Stack, box: Sandbox) -> None:
    pod = pod_name(box)
    theirs = json.loads(pods_exec(stack, pod, COMMAND))
    ours = told_by_op(box)
    assert len(theirs) > 50, "the script told next to nothing"
    differ = {
        name: (theirs.get(name), ours.get(name))
        for name in theirs.keys() | ours.keys()
        if theirs.get(name) != ours.get(name)
    }
    meant = {
        name
        for name, (_, value) in differ.items()
        if name in ALLOWED and re.fullmatch(ALLOWED[name].ours, str(value))
    }
    assert {name: differ[name] for name in differ.keys() - meant} == {}
    assert {"namespace mnt", "namespace pid", "hostname", "nproc"} <= meant
    # gVisor's /proc has no NoNewPrivs.
    told = {"CapEff", "CapBnd", "Seccomp"} if stack.runtime else {"CapEff", "CapBnd", "Seccomp", "NoNewPrivs"}
    assert {f"status {name}" for name in told} <= ours.keys()


def test_a_container_is_really_confined(stack: Stack, box: Sandbox) -> None:
    """Equal would be no comfort if the container itself had everything."""
    ours = told_by_op(box)
    forbidden = {
        "net_admin": 12,
        "net_raw": 13,
        "sys_module": 16,
        "sys_ptrace": 19,
        "sys_admin": 21,
        "sys_boot": 22,
    }
    for name, number in forbidden.items():
        assert not int(ours["status CapBnd"], 16) >> number & 1, name
    if not stack.runtime:
        assert ours["status Seccomp"] == "2"
    # Under gVisor with the chart's `sandboxes.pods.memoryHeadroom`, which is for what comes before a command's end.
    headroom = 256 << 20 if stack.runtime else 0
    assert int(pods_memory_limit(stack, box)) == (512 << 20) + headroom


def pods_memory_limit(stack: Stack, box: Sandbox) -> str:
    """Of the container, as the node was told."""
    return running_pod(stack, box)["spec"]["containers"][0]["resources"]["limits"]["memory"]


COUNT = (
    "nproc; echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $MKL_NUM_THREADS $NUMEXPR_NUM_THREADS $GOMAXPROCS"
    " $RAYON_NUM_THREADS $PYTHON_CPU_COUNT"
)
BUSY = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            pass
        os._exit(0)
for _ in range(2):
    os.wait()
"""


@pytest.mark.parametrize(("cpu", "counted"), [(1, 1), (0.5, 1), (2, 2)])
def test_threads_are_counted_by_the_limit(stack: Stack, client: Client, cpu: float, counted: int) -> None:
    """Of the pool's template and, started for it, of others."""
    with warm(client, cpu=cpu) as box:
        assert box.exec(COUNT, timeout=60).stdout.split() == [str(counted)] * 8
        resource = resource_of(stack, box)
        assert resource["spec"]["template"]["cpu"] == cpu
        assert resource["spec"]["template"]["image"] == IMAGE


def test_a_core_is_no_more_than_a_core(stack: Stack, box: Sandbox) -> None:
    """As the node counts: gVisor counts for its processes also the time in which they wait for a core."""
    cpu = PodCpu({running_pod(stack, box)["metadata"]["uid"]: "pod"}, processes={})
    before, began = cpu.look(), time.monotonic()
    if not before:
        pytest.skip("needs nodes on this machine")
    box.exec(["python3", "-c", BUSY], timeout=60, check=True)
    used = cpu.since(before)["pod"] / (time.monotonic() - began)
    assert 0.1 < used < 1.5, f"two busy processes used {used} cores of 1"
