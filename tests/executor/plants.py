"""What code can leave behind in a sandbox, one of each kind, and what it cannot touch: for every kind of sandbox."""

from __future__ import annotations

# By kind: the step of a reset that takes it away (executor/reset_steps.py), and a command that plants it.
PLANTS = {
    "file": ("root", "echo x > /planted"),
    "file in the depth": ("root", "mkdir -p /root/.config/a && echo x > /root/.config/a/b"),
    "line in the hosts": ("root", "echo '192.0.2.1 planted' >> /etc/hosts"),
    "name server": ("root", "echo 'nameserver 192.0.2.1' > /etc/resolv.conf"),
    "name of the host in a file": ("root", "echo planted > /etc/hostname"),
    "user": ("root", "echo 'planted:x:0:0::/:/bin/sh' >> /etc/passwd"),
    "timer of cron": ("root", "mkdir -p /etc/cron.d && echo '* * * * * root true' > /etc/cron.d/planted"),
    "mode": ("root", "chmod 777 /etc"),
    "mode of the root": ("root", "chmod 700 /"),
    "owner": ("root", "chown 7:7 /etc/passwd"),
    "removed file": ("root", "rm /etc/group"),
    "link": ("root", "ln -s /etc /linked"),
    "device's name": ("root", "rm /dev/fd; echo x > /dev/planted"),
    "shared memory": ("root", "echo x > /dev/shm/planted"),
    "mode of shared memory": ("root", "chmod 700 /dev/shm"),
    "process": ("processes", "setsid sleep 5555 > /dev/null 2>&1 &"),
    "socket": (
        "processes",
        "setsid python3 -c \"import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(5555)\""
        " > /dev/null 2>&1 &",
    ),
    "timer": (
        "processes",
        "setsid python3 -c 'import signal; signal.setitimer(signal.ITIMER_REAL, 5555); signal.pause()'"
        " > /dev/null 2>&1 &",
    ),
}
_SYSV = "python3 -c 'import ctypes; assert ctypes.CDLL(None).{} >= 0'"
IPC_PLANTS = {
    "System V memory": ("ipc", _SYSV.format("shmget(4711, 100000, 0o1666)")),
    "semaphores": ("ipc", _SYSV.format("semget(4712, 3, 0o1666)")),
    "messages": ("ipc", _SYSV.format("msgget(4713, 0o1666)")),
    "queue": ("ipc", "python3 -c \"open('/dev/mqueue/planted', 'w')\""),
}
# Says what it could touch of what outlasts a sandbox's files and processes: nothing.
TOUCH = r"""
import ctypes, fcntl, os, socket, struct, time
libc = ctypes.CDLL(None, use_errno=True)
def no(result):
    if result < 0: raise OSError(ctypes.get_errno(), "refused")
def write(path, text):
    with open(path, "w") as file: file.write(text)
def interface(request, data):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock: fcntl.ioctl(sock, request, data)
def link(kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(5)
        sock.sendto(struct.pack("=IHHII", 16 + len(body), kind, 0x405, 1, 0) + body, (0, 0))
        code, = struct.unpack_from("=i", sock.recv(4096), 16)
        if code: raise OSError(-code, "refused")
def filters():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sock: sock.setsockopt(0, 64, bytes(92))
ANYWHERE = struct.pack("=HHI8x", 2, 0, 0)
TOUCHES = {
    "mount": lambda: no(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None)),
    "unmount": lambda: no(libc.umount2(b"/proc", 2)),
    "hostname": lambda: socket.sethostname("planted"),
    "domain": lambda: no(libc.setdomainname(b"planted", 7)),
    "clock": lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
    "setting of the kernel": lambda: write("/proc/sys/kernel/msgmax", "8192"),
    "setting of the network": lambda: write("/proc/sys/net/ipv4/ip_default_ttl", "63"),
    "address": lambda: interface(0x8916, struct.pack("=16sHHI8x", b"lo", 2, 0, 0x0200007f)),
    "interface": lambda: interface(0x8914, struct.pack("=16sH14x", b"lo", 0)),
    "route": lambda: link(24, struct.pack("=8BI", 2, 32, 0, 0, 254, 4, 0, 1, 0) + struct.pack("=HHI", 8, 1, 0x010200c0)),
    "device": lambda: link(16, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + struct.pack("=HH8s", 12, 3, b"planted")),
    "firewall": filters,
    "cgroup": lambda: os.mkdir("/sys/fs/cgroup/planted"),
    "swap": lambda: no(libc.swapon(b"/etc/passwd", 0)),
}
for name, touch in TOUCHES.items():
    try: touch()
    except (OSError, AttributeError): continue
    print(name)
"""

# Says which of these have anything in them: they tell of the machine's kernel and devices.
PEEK = """
import os
names = ("asound", "acpi", "kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug", "scsi",
         "interrupts", "iomem", "ioports", "kallsyms", "kmsg", "vmallocinfo")
places = [f"/proc/{name}" for name in names] + ["/sys/firmware", "/sys/devices/virtual/powercap"]
for path in places:
    try:
        if os.path.isdir(path):
            found = os.listdir(path)
        else:
            with open(path, "rb") as file: found = file.read(64)
    except OSError: continue
    if found: print(path)
for path in [*places, "/proc/sysrq-trigger", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"]:
    if os.path.isdir(path):
        try: os.mkdir(f"{path}/planted")
        except OSError: continue
        print("made", path)
"""


def without(step: str) -> str:
    """Code for an executor's process: its resets leave this step out."""
    return f"from sandlot_sidecar.executor import reset_steps; reset_steps.STEPS.remove({step!r})\n"
