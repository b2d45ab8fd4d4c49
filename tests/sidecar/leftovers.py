"""Attacks on the next owner of a sandbox: what code plants in one generation, and how code of the next looks for it.

Each plant runs in a process of its own and ends with `planted` or `refused`; each look prints what it sees. A look is
run in a fresh generation, after the plants, and in the next generation, which must see what the fresh one saw.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

LOCAL, RUNC, GVISOR = "local", "runc", "gvisor"
SHAPES = (LOCAL, RUNC, GVISOR)
EVERYWHERE = frozenset(SHAPES)
NOWHERE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Attack:
    """`plant` and `look` are Python; `refused`: the shapes in which the plant is refused, by kernel or confinement.

    `hidden`: it cannot be seen in its own generation either, such as freed memory. `stays`: it may stay, which docs/security.md
    lists as a limit. `ends`: under gVisor it cannot be taken back, and the proof fails with a difference that begins so.
    """

    plant: str
    look: str
    refused: frozenset[str] = NOWHERE
    hidden: bool = False
    stays: bool = False
    ends: str = ""


# What plants and looks may use.
_PRELUDE = r"""
import base64, ctypes, errno, fcntl, glob, hashlib, json, mmap, os, resource, select, signal, socket, stat, struct
import subprocess, sys, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
PORT, SHAPE = int(sys.argv[2]), sys.argv[3]
USER, MOUNT, NETWORK, PIDS, UTS, IPC, TIME, GROUPS = (
    0x10000000, 0x20000, 0x40000000, 0x20000000, 0x4000000, 0x8000000, 0x80, 0x2000000)
ARM = os.uname().machine == 'aarch64'
def no(result, what='refused'):
    if result < 0: raise OSError(ctypes.get_errno(), what)
    return result
def call(x86, arm, *arguments):
    return no(libc.syscall(ctypes.c_long(arm if ARM else x86),
                           *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]))
def write(path, data):
    with open(path, 'wb', buffering=0) as file: file.write(data if isinstance(data, bytes) else data.encode())
def read(path):
    try:
        with open(path, 'rb') as file: return file.read()
    except OSError as error: return errno.errorcode[error.errno].encode()
def unshare(flags):
    no(libc.unshare(flags), 'unshare')
def as_root_of_its_own(flags=0):
    # In a user namespace, with every capability there.
    unshare(USER | flags)
    write('/proc/self/setgroups', 'deny')
    write('/proc/self/uid_map', '0 0 1')
    write('/proc/self/gid_map', '0 0 1')
def mount(source, target, kind, flags=0, options=None):
    if not os.path.exists(target): os.makedirs(target)
    no(libc.mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, options), 'mount')
def background(work, *, end=True):
    # A process of its own session that lives on after `work`; raises what that raises.
    out, into = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        os.close(out)
        null = os.open('/dev/null', os.O_RDWR)
        for fd in (0, 1, 2): os.dup2(null, fd)
        try:
            work()
        except OSError as error:
            os.write(into, b'%d' % (error.errno or 0))
            os._exit(1)
        os.write(into, b'up')
        os.close(into)
        while end: signal.pause()
        os._exit(0)
    os.close(into)
    said = os.read(out, 99)
    os.close(out)
    if said != b'up': raise OSError(int(said or b'5'), 'in the background')
def others():
    # Processes that are neither init nor this program's own.
    mine, pid = {1}, os.getpid()
    while pid > 1:
        mine.add(pid)
        pid = int(read(f'/proc/{pid}/stat').rpartition(b')')[2].split()[1])
    found = [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) not in mine]
    return sorted(read(f'/proc/{pid}/comm').decode().strip() for pid in found)
def mine():
    # How many processes the plant of the same name has left.
    return others().count(NAME)
"""
_DRIVER = r"""
programs = json.loads(base64.b64decode(os.read(os.open(sys.argv[1], os.O_RDONLY), 1 << 22)))
os.unlink(sys.argv[1])
told = {}
for name, code in programs.items():
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        NAME = 'p' + hashlib.sha256(name.encode()).hexdigest()[:12]
        libc.prctl(15, NAME.encode(), 0, 0, 0)
        try:
            space = {**globals(), 'NAME': NAME}
            said = []
            space['see'] = lambda *seen: said.append(' '.join(map(str, seen)))
            exec(code, space)
            result = '\n'.join(said) or 'nothing'
        except (OSError, AttributeError) as error:
            number = getattr(error, 'errno', None) or 0
            result = 'refused ' + errno.errorcode.get(number, repr(error)) + ' ' + str(error)
        except BaseException as error:
            result = 'broken ' + repr(error)
        os.write(into, result.encode('utf-8', 'backslashreplace')[:60000])
        os._exit(0)
    os.close(into)
    # Not to the end of the pipe, which what was planted keeps open.
    os.waitpid(child, 0)
    told[name] = os.read(out, 65536).decode()
    os.close(out)
print(json.dumps(told))
"""
PROGRAM = _PRELUDE + _DRIVER


def packed(programs: dict[str, str]) -> bytes:
    """The file that the driver reads and removes."""
    return base64.b64encode(json.dumps(programs).encode())
