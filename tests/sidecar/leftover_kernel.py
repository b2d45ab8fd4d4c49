"""Objects and settings of the kernel that belong to no file, process or network; see `leftovers`."""

from __future__ import annotations

from tests.sidecar.leftovers import EVERYWHERE, LOCAL, RUNC, Attack

# What opens for writing there, but for what is the process's own.
_WRITABLE = r"""
def writable(*tops):
    found = []
    for top in tops:
        for parent, names, files in os.walk(top):
            names[:] = [name for name in names if not name.isdigit() and name not in ('self', 'thread-self')]
            for name in files:
                path = os.path.join(parent, name)
                try: info = os.stat(path)
                except OSError: continue
                if not stat.S_ISREG(info.st_mode) or not info.st_mode & 0o222: continue
                try: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                except OSError: continue
                found.append(path)
    return found
"""
_SETTINGS = r"""
def settings():
    found = {}
    for parent, _, files in os.walk('/proc/sys'):
        for name in files:
            if 'random' not in parent: found[os.path.join(parent, name)] = read(os.path.join(parent, name))
    return sorted(found.items())
# On Linux they are the machine's, which others change meanwhile.
see(read('/root/set'), hashlib.sha256(repr(settings()).encode()).hexdigest() if SHAPE == 'gvisor' else '')
"""
_IN_ITS_OWN = r"""
as_root_of_its_own(MOUNT)
for path in (b'/proc/sys', b'/proc', b'/sys/fs/cgroup', b'/sys'):
    for _ in range(3): libc.umount2(path, 2)
for kind, point in (('proc', '/mnt'), ('sysfs', '/srv')):
    try: mount('left', point, kind)
    except OSError: pass
"""

OBJECTS = {
    "System V memory": Attack("no(libc.shmget(4711, 100000, 0o1666))", "see(libc.shmget(4711, 1, 0) >= 0)"),
    "System V memory that is attached": Attack(
        r"""
def attach():
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat(no(libc.shmget(4712, 100000, 0o1666)), None, 0)
background(attach)
""",
        "see(libc.shmget(4712, 1, 0) >= 0)",
    ),
    "semaphores": Attack("no(libc.semget(4713, 3, 0o1666))", "see(libc.semget(4713, 0, 0) >= 0)"),
    "messages": Attack("no(libc.msgget(4714, 0o1666))", "see(libc.msgget(4714, 0) >= 0)"),
    "a queue": Attack(
        "no(libc.mq_open(b'/left', os.O_CREAT | os.O_RDWR, 0o666, None))",
        "see(os.listdir('/dev/mqueue'), libc.mq_open(b'/left', 0) >= 0)",
    ),
    "keys": Attack(
        r"""
for ring in (-1, -2, -3, -4, -5):
    try: call(248, 217, b'user', b'left', b'secret', 6, ring)
    except OSError as error: failure = error
    else: break
else: raise failure
""",
        "see([libc.syscall(249, b'user', b'left', None, 0) for _ in range(1)])",
        refused=EVERYWHERE,
    ),
    "a session of keys": Attack(
        "call(250, 219, 1, b'left', 0, 0, 0)", "see('')", refused=frozenset((LOCAL, RUNC)), hidden=True
    ),
    "keys that stay": Attack("call(250, 219, 22, 0, -4, 0, 0)", "see('')", refused=EVERYWHERE),
    "memory": Attack(
        r"""
def hold():
    global region, pipe, near, far
    region = mmap.mmap(-1, 96 << 20); region.write(b'LEFT-IN-MEMORY!!' * (6 << 20))
    pipe = os.pipe(); os.write(pipe[1], b'LEFT-IN-MEMORY!!' * 4096)
    near, far = socket.socketpair(); near.send(b'LEFT-IN-MEMORY!!' * 1024)
background(hold)
""",
        r"""
count = 0
for size in (64 << 20, 16 << 20, 1 << 20, 1 << 16):
    region = mmap.mmap(-1, size); count += region.find(b'IN-MEMORY') >= 0; region.close()
libc.malloc.restype = ctypes.c_void_p
for size in (1 << 26, 1 << 20, 1 << 14, 1 << 10):
    count += b'LEFT-IN-MEMO' + b'RY' in ctypes.string_at(libc.malloc(ctypes.c_size_t(size)), size)
see(count)
""",
        hidden=True,
    ),
}
SETTINGS = {
    "host name": Attack("socket.sethostname('planted')", "see(os.uname().nodename)", refused=EVERYWHERE),
    "domain name": Attack(
        "no(libc.setdomainname(b'planted', 7))",
        "see(read('/proc/sys/kernel/domainname'))",
        refused=EVERYWHERE,
    ),
    "host name, as root of a user namespace": Attack(
        "as_root_of_its_own(); socket.sethostname('planted')", "see(os.uname().nodename)", refused=EVERYWHERE
    ),
    "clock": Attack("time.clock_settime(time.CLOCK_REALTIME, time.time())", "see('')", refused=EVERYWHERE),
    "speed of the clock": Attack(
        "no(libc.adjtimex(struct.pack('Iq', 2, 0) + bytes(200)))", "see('')", refused=EVERYWHERE
    ),
    "time of day": Attack(
        "no(libc.settimeofday(struct.pack('qq', int(time.time()), 0), None))", "see('')", refused=EVERYWHERE
    ),
    "files of the kernel": Attack(
        _WRITABLE
        + r"""
# What is written to a file of pressure ends with its descriptor.
found = [path for path in writable('/proc', '/sys') if not path.startswith('/proc/pressure/')]
if not found: raise OSError(30, 'none')
write('/root/writable', repr(found))
""",
        "see(read('/root/writable'))",
        refused=EVERYWHERE,
    ),
    "files of the kernel, as root of a user namespace": Attack(
        _IN_ITS_OWN
        + _WRITABLE
        + r"""
found = [path for path in writable('/proc', '/sys', '/mnt', '/srv') if '/sys/' in path or path.startswith('/s')]
if not found: raise OSError(30, 'none')
write('/root/writable', repr(found))
""",
        "see(read('/root/writable'))",
        refused=EVERYWHERE,
    ),
    "settings of the kernel": Attack(
        r"""
done = []
for name in ('kernel/core_pattern', 'net/ipv4/ip_forward', 'net/ipv4/ip_local_port_range', 'kernel/shmmax', 'vm/overcommit_memory',
             'vm/nr_hugepages', 'fs/nr_open', 'net/core/somaxconn', 'net/ipv4/tcp_sack', 'fs/mqueue/msg_max', 'kernel/randomize_va_space'):
    # What it is, since the machine's own would change.
    try: write('/proc/sys/' + name, read('/proc/sys/' + name))
    except OSError as error: failure = error
    else: done.append(name)
if not done: raise failure
write('/root/set', repr(done))
""",
        _SETTINGS,
        refused=EVERYWHERE,
    ),
    "control groups, as root of a user namespace": Attack(
        _IN_ITS_OWN
        + r"""
for kind, options in (('cgroup2', None), *(('cgroup', name) for name in (b'memory', b'pids', b'cpu', b'freezer', b'devices', b'none,name=left'))):
    try: mount('left', '/srv', kind, 0, options)
    except OSError as error: failure = error
    else: os.mkdir('/srv/left'); break
else: raise failure
""",
        "see('')",
        refused=EVERYWHERE,
    ),
    "modules": Attack("call(175, 105, b'', 0, b'')", "see('')", refused=EVERYWHERE),
    "swap": Attack("no(libc.swapon(b'/etc/passwd', 0))", "see('')", refused=EVERYWHERE),
    "the kernel's log": Attack("write('/dev/kmsg', 'left')", "see(os.path.exists('/dev/kmsg'))"),
    "limits and priorities of init": Attack(
        r"""
done = 0
for attempt in (lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (10, 10)), lambda: os.sched_setaffinity(1, {0}),
                lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)), lambda: os.setpriority(os.PRIO_PROCESS, 1, 10),
                lambda: write('/proc/1/oom_score_adj', '1000')):
    try: attempt(); done += 1
    except OSError as error: failure = error
if not done: raise failure
""",
        "see(os.sched_getaffinity(1), os.getpriority(os.PRIO_PROCESS, 1), os.sched_getscheduler(1), "
        "[read('/proc/1/' + name) for name in ('limits', 'oom_score_adj')])",
    ),
    "the sidecar's environment, with its token": Attack(
        r"""
def look():
    for top in ('/proc', '/mnt'):
        for name in ('gvisor/spec_environ', '1/environ'):
            try: found = open(f'{top}/{name}', 'rb').read(9)
            except OSError as error: failure = error
            else: return
    raise failure
try: look()
except OSError:
    as_root_of_its_own(MOUNT)
    mount('left', '/mnt', 'proc')
    look()
""",
        "see('')",
        refused=EVERYWHERE,
    ),
    "what a process inherits": Attack(
        r"""
def change():
    os.umask(0o777); os.nice(5); signal.signal(signal.SIGTERM, signal.SIG_IGN); libc.personality(0x40000)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); os.sched_setaffinity(0, {0})
    for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE): resource.setrlimit(which, (0, resource.getrlimit(which)[1]))
    os.setpriority(os.PRIO_PGRP, 0, 10)
    try: os.setpriority(os.PRIO_USER, 0, 11)
    except OSError: pass
background(change)
""",
        r"""
lines = [line for line in read('/proc/self/status').splitlines() if line.split(b':')[0] in (
    b'SigIgn', b'SigBlk', b'Cpus_allowed', b'CapEff', b'CapBnd', b'CapInh', b'CapAmb', b'NoNewPrivs', b'Seccomp', b'Seccomp_filters', b'Umask')]
see(lines, os.getpriority(0, 0), read('/proc/self/limits'), read('/proc/self/personality'), read('/proc/self/oom_score_adj'), os.getcwd(),
    sorted(os.environ), os.sched_getaffinity(0), mine())
""",
    ),
}
