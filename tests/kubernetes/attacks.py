"""Programs that code in a sandbox may run to see or break what is around it; each prints what it got, as JSON."""

from __future__ import annotations

# Looks for texts in all that can be read. They are given reversed, or the program would find itself.
SPY = r"""
import json, os, stat, sys
needles = [text[::-1].encode() for text in sys.argv[1:]]
found = []
def look(path, limit=1 << 22):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            data = os.read(fd, limit)
        finally:
            os.close(fd)
    except OSError:
        return b''
    for number, needle in enumerate(needles):
        if needle in data:
            found.append([path, number])
    return data
own = str(os.getpid())
processes = sorted(filter(str.isdigit, os.listdir('/proc')), key=int)
foreign = []
for pid in processes:
    for name in ('cmdline', 'environ', 'maps', 'status', 'mountinfo', 'cgroup', 'stack', 'auxv'):
        data = look(f'/proc/{pid}/{name}')
        if name in ('cmdline', 'environ', 'maps') and pid != own and (b'sandlot_sidecar' in data or b'SIDECAR' in data):
            foreign.append([pid, name])
    for name in ('fd', 'root/', 'cwd/', 'task/' + pid + '/fd'):
        try:
            inside = os.listdir(f'/proc/{pid}/{name}')
            if name.endswith('/') and os.path.samestat(os.stat(f'/proc/{pid}/{name}'), os.stat('/')):
                continue
        except OSError:
            continue
        if pid == '1' and inside:
            foreign.append([pid, name, inside])
    try:
        with open(f'/proc/{pid}/mem', 'rb') as memory, open(f'/proc/{pid}/maps') as maps:
            for line in maps if pid != own else ():
                start = int(line.split('-')[0], 16)
                try:
                    memory.seek(start)
                    if memory.read(64):
                        foreign.append([pid, 'mem'])
                        break
                except (OSError, ValueError, OverflowError):
                    pass
    except OSError:
        pass
look('/proc/gvisor/spec_environ')
# All files of the sandbox but the kernel's own and the distribution's programs.
for top in ('/dev', '/etc', '/home', '/mnt', '/opt', '/root', '/run', '/srv', '/tmp', '/var'):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    look(path)
            except OSError:
                pass
mounts = [line.split()[4] for line in open('/proc/self/mountinfo')]
print(json.dumps({
    'found': found, 'foreign': foreign, 'processes': len(processes), 'first': processes[0],
    'names': [name for name in os.environ if name.startswith('SANDLOT')],
    'in environment': [number for number, needle in enumerate(needles)
                       if any(needle in value.encode() for value in os.environ.values())],
    'account': [path for path in ('/var/run/secrets', '/run/secrets', '/run/sandlot') if os.path.exists(path)],
    'mounts': mounts,
}))
"""

# Asks for what only the machine's owner may have; prints what it was given.
BREAKOUT = r"""
import ctypes, errno, json, os, resource, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
got = []
def attempt(name, function, *arguments):
    try:
        result = function(*arguments)
    except (OSError, ValueError):
        return
    if isinstance(result, int) and result < 0:
        return
    got.append(name)
def call(number, *arguments):
    return libc.syscall(ctypes.c_long(number), *[ctypes.c_long(value) if isinstance(value, int) else value for value in arguments])
def write(path, text):
    if os.stat(path).st_rdev == os.stat('/dev/null').st_rdev:
        raise OSError(errno.EPERM, 'masked')
    with open(path, 'w') as file:
        file.write(text)
def read(path):
    with open(path, 'rb') as file:
        if not file.read(16):  # /dev/null over it
            raise OSError(errno.EPERM, 'empty')
def node(path, kind, major, minor):
    os.mknod(path, kind | 0o600, os.makedev(major, minor))
    try:
        read(path)
    finally:
        os.unlink(path)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
attempt('ptrace of init', libc.ptrace, PTRACE_ATTACH, 1, 0, 0)
attempt('ptrace (seize) of init', libc.ptrace, PTRACE_SEIZE, 1, 0, 0)
os.makedirs('/tmp/mnt', exist_ok=True)
attempt('mount of a tmpfs', libc.mount, b'x', b'/tmp/mnt', b'tmpfs', 0, None)
attempt('mount of proc', libc.mount, b'x', b'/tmp/mnt', b'proc', 0, None)
attempt('mount of cgroups', libc.mount, b'x', b'/tmp/mnt', b'cgroup2', 0, None)
attempt('bind mount', libc.mount, b'/etc', b'/tmp/mnt', None, 4096, None)
attempt('umount of /proc', libc.umount2, b'/proc', 2)
attempt('pivot_root', call, 155, b'/tmp', b'/tmp/mnt')
attempt('a mount namespace', libc.unshare, 0x20000)
attempt('a network namespace', libc.unshare, 0x40000000)
attempt('a PID namespace', libc.unshare, 0x20000000)
for name in ('mnt', 'pid', 'net', 'user'):
    attempt(f'init\'s {name} namespace', lambda: libc.setns(os.open(f'/proc/1/ns/{name}', os.O_RDONLY), 0))
attempt('a raw socket', socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
attempt('a packet socket', socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
attempt('a disk', node, '/tmp/disk', 0o60000, 254, 0)
attempt('a disk (sda)', node, '/tmp/sda', 0o60000, 8, 0)
attempt('/dev/mem by number', node, '/tmp/mem', 0o20000, 1, 1)
attempt('/dev/kmsg by number', node, '/tmp/kmsg', 0o20000, 1, 11)
attempt('a module', call, 175, b'', 0, b'')
attempt('kexec', call, 246, 0, 0, 0, 0)
attempt('reboot', libc.reboot, 0x01234567)
attempt('the clock', libc.settimeofday, (ctypes.c_long * 2)(0, 0), None)
attempt('the host name', libc.sethostname, b'mine', 4)
attempt('bpf', call, 321, 0, ctypes.create_string_buffer(64), 64)
attempt('swap', libc.swapon, b'/etc/passwd', 0)
attempt('a priority below 0', os.setpriority, os.PRIO_PROCESS, 0, -10)
attempt('real-time scheduling', os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
attempt('more open files', resource.setrlimit, resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/kernel/uevent_helper', '/proc/sys/kernel/modprobe',
             '/proc/sys/vm/drop_caches', '/proc/sys/kernel/hostname', '/sys/fs/cgroup/memory/memory.limit_in_bytes'):
    attempt('write to ' + path, write, path, '1')
for path in ('/proc/kcore', '/dev/mem', '/dev/kmem', '/proc/kmsg'):
    attempt('read of ' + path, read, path)
before = os.listdir('/')
os.makedirs('/tmp/jail', exist_ok=True)
def jailbreak():
    root = os.open('/', os.O_RDONLY)
    os.chroot('/tmp/jail')
    os.fchdir(root)
    for _ in range(64):
        os.chdir('..')
    os.chroot('.')
    if sorted(os.listdir('/')) in ([], sorted(before)):
        raise OSError(errno.EPERM, 'the same root, or nothing')
attempt('another root by chroot', jailbreak)
print(json.dumps(got))
"""

# In a user namespace of one's own, where the kernel gives one, nothing more can be seen.
NAMESPACE = r"""
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
got = []
mapped = os.getuid()
if libc.unshare(0x10000000 | 0x20000) == 0:  # a user and a mount namespace
    try:
        with open('/proc/self/setgroups', 'w') as file: file.write('deny')
        with open('/proc/self/uid_map', 'w') as file: file.write(f'0 {mapped} 1')
    except OSError:
        pass
    before = set(os.listdir('/proc'))
    for path in (b'/proc', b'/dev', b'/sys', b'/tmp', b'/etc/hosts', b'/etc/resolv.conf'):
        for _ in range(3):
            libc.umount2(path, 2)
    try:
        left = set(filter(str.isdigit, os.listdir('/proc')))
    except OSError:
        left = set()
    if len(left) > 4:
        got.append(['processes', sorted(left)])
    os.makedirs('/tmp/mnt', exist_ok=True)
    libc.mount(b'x', b'/tmp/mnt', b'proc', 0, None)
    for pid in filter(str.isdigit, os.listdir('/tmp/mnt')):
        try:
            with open(f'/tmp/mnt/{pid}/cmdline', 'rb') as file: data = file.read()
        except OSError:
            continue
        if (b'sidecar' in data or b'pause' in data) and b'uid_map' not in data:  # this very program
            got.append(['proc', pid, data.decode(errors='replace')])
    for path in ('/proc', '/tmp/mnt'):
        if os.path.exists(path + '/gvisor/spec_environ'):
            got.append(['environment', path])
        try: open(path + '/sys/net/ipv4/ip_forward', 'w').close()
        except OSError: continue
        got.append(['settings', path])
    if libc.mount(b'x', b'/tmp/mnt', b'cgroup', 0, b'memory') == 0:
        got.append(['cgroups', 'v1'])
    if libc.mount(b'x', b'/tmp/mnt', b'cgroup2', 0, None) == 0 and os.path.exists('/tmp/mnt/cgroup.procs'):
        got.append(['cgroups'])
    for path in ('/run/sandlot', '/var/run/secrets'):
        if os.path.exists(path):
            got.append(['path', path])
print(json.dumps(got))
"""
