"""Processes that try to outlive their generation, and how the next looks for them; see `leftovers`."""

from __future__ import annotations

from tests.sidecar.leftovers import EVERYWHERE, GVISOR, LOCAL, Attack

_LOOK = "see(mine())"
PROCESSES = {
    "a daemon": Attack("background(lambda: None)", _LOOK),
    "one that ignores all signals": Attack(
        "background(lambda: [signal.signal(n, signal.SIG_IGN) for n in range(1, 65) if n not in (9, 19, 32, 33)])",
        _LOOK,
    ),
    "a stopped one": Attack(
        r"""
def stop():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
background(stop)
""",
        _LOOK,
    ),
    "a traced one": Attack(
        r"""
def trace():
    pid = os.fork()
    if pid == 0:
        no(libc.ptrace(0, 0, 0, 0)); os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(pid, 2)
background(trace)
""",
        _LOOK,
    ),
    "one that waits for a vfork": Attack(
        r"""
def wait():
    # Its parent sleeps in the kernel until it has started a program, which it never does.
    if os.fork() == 0 and call(56, 220, 0x4000 | 17, 0, 0, 0, 0) == 0:
        while True: signal.pause()
background(wait)
""",
        _LOOK,
    ),
    "one whose first thread is dead": Attack(
        r"""
def leave():
    threading.Thread(target=lambda: time.sleep(5555)).start()
    if os.fork() == 0:
        threading.Thread(target=lambda: time.sleep(5555)).start(); time.sleep(0.05); libc.pthread_exit(None)
background(leave)
""",
        _LOOK,
    ),
    "a sibling": Attack(
        # CLONE_PARENT: a child of its parent's parent.
        r"""
if call(56, 220, 0x8000 | 17, 0, 0, 0, 0) == 0:
    os.setsid()
    null = os.open('/dev/null', os.O_RDWR)
    for fd in (0, 1, 2): os.dup2(null, fd)
    os.closerange(3, 99)
    while True: signal.pause()
""",
        _LOOK,
    ),
    "one with init's name and rights of its own": Attack(
        r"""
def rename():
    libc.prctl(15, b'init', 0, 0, 0); libc.prctl(4, 0, 0, 0, 0); libc.prctl(36, 1, 0, 0, 0)
    os.nice(19); os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); write('/proc/self/oom_score_adj', '1000')
background(rename)
""",
        "see(others().count('init'))",
    ),
    "a dead one that nobody waits for": Attack(
        r"""
def leave():
    if os.fork() == 0: os._exit(0)
background(leave)
""",
        _LOOK,
    ),
    "timers and a signal for later": Attack(
        "background(lambda: [signal.setitimer(signal.ITIMER_REAL, 5555), signal.alarm(5555)] and None)", _LOOK
    ),
    "descriptors in flight": Attack(
        r"""
def fly():
    # A cycle of sockets, each with the other's descriptor in its queue, and a listener's.
    global one, other
    one, other = socket.socketpair()
    server = socket.create_server(('127.0.0.1', PORT + 9))
    socket.send_fds(one, [b'x'], [one.fileno(), other.fileno(), server.fileno()])
    socket.send_fds(other, [b'x'], [one.fileno(), other.fileno()])
    server.close()
background(fly)
""",
        r"""
for _ in range(150):  # the kernel's collector of sockets takes its time
    with socket.socket() as probe:
        try: probe.bind(('127.0.0.1', PORT + 9)); see('free'); break
        except OSError: time.sleep(0.02)
else: see('held')
""",
        ends="socket tcp ",
    ),
    "one in namespaces of its own": Attack(
        r"""
def leave():
    as_root_of_its_own(PIDS | MOUNT | UTS | IPC | NETWORK)
    if os.fork() == 0:
        while True: signal.pause()
background(leave)
""",
        _LOOK,
        refused=EVERYWHERE,
    ),
    "one in namespaces below others": Attack(
        r"""
def leave():
    for _ in range(3):
        as_root_of_its_own(PIDS | MOUNT)
        if os.fork(): return
    if os.fork() == 0: os.setsid()
background(leave)
""",
        _LOOK,
        refused=EVERYWHERE,
    ),
    "one in a time of its own": Attack(
        "background(lambda: as_root_of_its_own(TIME))", _LOOK, refused=EVERYWHERE
    ),
    "one in a control group of its own": Attack(
        r"""
def leave():
    as_root_of_its_own(MOUNT)
    for kind, options in (('cgroup2', None), ('cgroup', b'pids'), ('cgroup', b'memory'), ('cgroup', b'cpu')):
        try: mount('left', '/mnt', kind, 0, options); break
        except OSError as error: failure = error
    else: raise failure
    os.mkdir('/mnt/left'); write('/mnt/left/cgroup.procs', '0')
background(leave)
""",
        "see(mine())",
        refused=EVERYWHERE,
    ),
    "control groups": Attack(
        "os.mkdir('/sys/fs/cgroup/left')", "see(os.listdir('/sys/fs/cgroup'))", refused=EVERYWHERE
    ),
    "a ring of the kernel's": Attack(
        r"""
def ring():
    call(425, 425, 8, ctypes.create_string_buffer(120))
background(ring)
""",
        _LOOK,
        refused=frozenset((LOCAL, GVISOR)),
    ),
    "other memory": Attack(
        r"""
def hold():
    fd = os.memfd_create('left', os.MFD_ALLOW_SEALING); os.write(fd, bytes(1 << 20)); fcntl.fcntl(fd, 1033, 2)
    region = mmap.mmap(fd, 1 << 20); libc.mlock(ctypes.c_char_p(b'x'), 1)
    os.pipe(); select.epoll(); libc.eventfd(0, 0); libc.timerfd_create(0, 0)
background(hold)
""",
        _LOOK,
    ),
    "handling of page faults": Attack("fd = call(323, 282, 0o2000000)", _LOOK, refused=EVERYWHERE),
    "programs in the kernel": Attack(
        "call(321, 280, 0, ctypes.create_string_buffer(64), 64)", _LOOK, refused=EVERYWHERE
    ),
    "counters of the processor": Attack(
        "call(298, 241, ctypes.create_string_buffer(struct.pack('II', 1, 112) + bytes(104)), 0, -1, -1, 0)",
        _LOOK,
        refused=EVERYWHERE,
    ),
}
