"""Plants in everything that is a file, and how the next generation looks for them; see `leftovers`."""

from __future__ import annotations

from tests.sidecar.leftovers import EVERYWHERE, LOCAL, RUNC, Attack

_EVERYWHERE = r"""
def places():
    found = {'/', '/root', '/tmp', '/var/tmp', '/run', '/dev', '/dev/shm', '/dev/mqueue', '/mnt', '/home', '/srv', '/etc', '/work',
             '/proc', '/sys', '/usr'}
    for line in open('/proc/self/mountinfo'):
        found.add(line.split(' - ')[0].split()[4])
    return sorted(path for path in found if os.path.isdir(path))
"""
_TREE = r"""
# Names, types, modes, owners, sizes and attributes.
lines = []
for path in ('/', '/dev', '/dev/shm', '/etc', '/tmp', '/run', *('/root/' + name for name in (
        'link', 'hard', 'pipe', 'disk', 'opaque', 'socket', 'suid'))):
    inside = sorted(os.listdir(path)) if os.path.isdir(path) and path not in ('/', '/root/link') else []
    for each in (path, *(f'{path}/{name}' for name in inside)):
        try: info = os.lstat(each)
        except FileNotFoundError: continue
        try: attributes = os.listxattr(each, follow_symlinks=False)
        except OSError: attributes = []
        size = info.st_size if stat.S_ISREG(info.st_mode) else 0
        lines.append((each, info.st_mode, info.st_uid, info.st_gid, info.st_rdev, size, attributes))
see(len(lines), hashlib.sha256(repr(lines).encode()).hexdigest())
"""

FILES = {
    "hidden files": Attack(
        r"""
for path in (b'/root/...', b'/etc/.left\n', b'/tmp/.\xff\xfe', b'/dev/.left', b'/dev/shm/.left', b'/run/.left', b'/etc/cron.d/left',
             b'/var/spool/cron/crontabs/root', b'/var/spool/cron/atjobs/a00001', b'/root/.profile', b'/etc/ld.so.preload.d/x'):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write(path, 'planted')
write('/etc/hosts', '192.0.2.1 planted'); write('/etc/resolv.conf', 'nameserver 192.0.2.1')
write('/etc/hostname', 'planted'); write('/etc/nsswitch.conf', 'hosts: files')
""",
        r"""
for path in (b'/root/...', b'/etc/.left\n', b'/tmp/.\xff\xfe', b'/dev/.left', b'/dev/shm/.left', b'/run/.left', b'/etc/cron.d/left',
             b'/var/spool/cron/crontabs/root', b'/var/spool/cron/atjobs/a00001', b'/root/.profile', b'/etc/ld.so.preload.d/x',
             '/etc/hosts', '/etc/resolv.conf', '/etc/hostname', '/etc/nsswitch.conf'):
    see(path, hashlib.sha256(read(path)).hexdigest())
""",
    ),
    "files at every mount point": Attack(
        _EVERYWHERE + "for place in places():\n"
        " try: write(f'{place}/.everywhere', 'planted')\n"
        " except OSError: continue",
        _EVERYWHERE + "see([place for place in places() if os.path.lexists(f'{place}/.everywhere')])",
    ),
    "names, types, modes, owners, attributes": Attack(
        r"""
os.symlink('/etc', '/root/link'); os.link('/etc/passwd', '/root/hard'); os.mkfifo('/root/pipe')
os.mknod('/root/disk', stat.S_IFBLK | 0o666, os.makedev(8, 0))
os.mkdir('/root/opaque'); os.rename('/etc/hostname', '/root/opaque/hostname')
socket.socket(socket.AF_UNIX).bind('/root/socket')
write('/root/suid', read('/bin/sh')); os.chmod('/root/suid', 0o6755)
os.chmod('/etc', 0o700); os.chown('/etc/passwd', 77, 77); os.chmod('/', 0o711); os.chmod('/dev/shm', 0o700); os.chmod('/dev', 0o777)
os.utime('/', (1, 1)); os.utime('/dev', (1, 1))
try: os.setxattr('/etc/passwd', 'user.left', b'x')
except OSError: pass
try: os.setxattr('/root/suid', 'security.capability', struct.pack('<5I', 0x2000000, 1, 0, 0, 0))
except OSError: pass
""",
        _TREE + "see(os.stat('/').st_mtime == 1, os.stat('/dev').st_mtime == 1)",
    ),
    "a device that hides a file": Attack(
        "os.mknod('/etc/left', stat.S_IFCHR | 0o666, 0)",
        "see(os.path.lexists('/etc/left'))",
        refused=EVERYWHERE,
    ),
    "a tree deeper than any path": Attack(
        r"""
os.mkdir('/root/deep'); os.chdir('/root/deep')
for number in range(400): os.mkdir('d' * 200); os.chdir('d' * 200)
write('left', 'planted')
""",
        "see(os.path.exists('/root/deep'))",
    ),
    "files without rights": Attack(
        "os.mkdir('/root/closed'); write('/root/closed/x', 'x'); os.chown('/root/closed', 65534, 65534); os.chmod('/root/closed', 0)",
        "see(os.path.exists('/root/closed'))",
    ),
    "an immutable file": Attack(
        r"""
write('/root/forever', 'planted')
file = open('/root/forever')
fcntl.ioctl(file, 0x40086602, struct.pack('l', 0x10))
""",
        "see(os.path.exists('/root/forever'))",
        refused=EVERYWHERE,
    ),
    "a deleted file that is open": Attack(
        r"""
def hold():
    global file
    file = open('/root/deleted', 'wb'); os.unlink('/root/deleted'); file.write(bytes(4 << 20)); file.flush()
background(hold)
""",
        "see(sum('(deleted)' in os.readlink(each) for each in glob.glob('/proc/[0-9]*/fd/*') if os.path.islink(each)))",
    ),
    "locks and leases on files of the image": Attack(
        r"""
def hold():
    global held
    held = [open('/etc/group', 'r+'), open('/etc/group', 'r+')]
    fcntl.flock(held[0], fcntl.LOCK_EX); fcntl.lockf(held[1], fcntl.LOCK_EX)
background(hold)
""",
        r"""
for lock in (fcntl.flock, fcntl.lockf):
    try: lock(open('/etc/group', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB); see('free')
    except BlockingIOError: see('locked')
""",
    ),
    "watches of files": Attack(
        r"""
def watch():
    number = no(libc.inotify_init1(0)); no(libc.inotify_add_watch(number, b'/etc', 0xfff))
background(watch)
""",
        "see(others())",
    ),
    "watches of whole mounts": Attack(
        "number = call(300, 262, 0, 0); call(301, 263, number, 0x11, 0x1b, -100, b'/')",
        "see('')",
        refused=EVERYWHERE,
    ),
    "blocks of deleted files": Attack(
        "write('/root/block', b'LEFT-ON-DISK' * 700000); os.unlink('/root/block'); write('/dev/shm/block', b'LEFT-ON-DISK' * 70000)",
        r"""
for path in ('/root/new', '/dev/shm/new'):
    fd = os.open(path, os.O_RDWR | os.O_CREAT); os.unlink(path)
    try: os.posix_fallocate(fd, 0, 4 << 20)
    except OSError: os.ftruncate(fd, 4 << 20)
    see(b'LEFT-ON' in os.read(fd, 4 << 20))
""",
        hidden=True,
    ),
    "the mode, times and attributes of devices": Attack(
        # To what they are, since the machine's own devices would change with them.
        r"""
info = os.stat('/dev/null')
for attempt in (lambda: os.chmod('/dev/null', stat.S_IMODE(info.st_mode)), lambda: os.chown('/dev/zero', 0, 0),
                lambda: os.utime('/dev/full', ns=(info.st_atime_ns, info.st_mtime_ns)),
                lambda: os.fchmod(os.open('/dev/urandom', os.O_RDONLY), 0o666)):
    try: attempt()
    except OSError as error: failure = error
    else: break
else: raise failure
""",
        "see([(name, os.stat('/dev/' + name).st_mode) for name in ('null', 'zero', 'full', 'random', 'urandom', 'tty')])",
        refused=frozenset((LOCAL, RUNC)),
        hidden=True,
    ),
    "the mode of a device": Attack(
        # The machine's own device would change with it, were it not refused.
        "os.chmod('/dev/full', 0o666 if SHAPE == 'local' else 0o600)",
        "see(os.stat('/dev/full').st_mode)",
        refused=frozenset((LOCAL, RUNC)),
        ends="file dev/full: mode",
    ),
    "terminals": Attack(
        r"""
def hold():
    global near, far
    os.setsid(); near, far = os.openpty(); fcntl.ioctl(far, 0x540E); os.write(far, b'planted'); os.fchmod(far, 0o777)
background(hold)
""",
        "near, far = os.openpty(); see(sorted(os.listdir('/dev/pts')), os.ttyname(far), oct(os.fstat(far).st_mode)); os.close(near)",
    ),
    "input pushed into a terminal": Attack(
        "fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')", "see('')", refused=EVERYWHERE
    ),
    "devices of the machine": Attack(
        r"""
for path, kind, device in (('/root/kmsg', stat.S_IFCHR, (1, 11)), ('/root/fuse', stat.S_IFCHR, (10, 229)), ('/dev/loop', stat.S_IFBLK, (7, 0)),
                           ('/dev/shm/loops', stat.S_IFCHR, (10, 237)), ('/dev/tun', stat.S_IFCHR, (10, 200))):
    os.mknod(path, kind | 0o666, os.makedev(*device))
    try: os.open(path, os.O_RDWR); break
    except OSError as error: failure = error
else: raise failure
""",
        "see('')",
        refused=frozenset((LOCAL, RUNC)),
        hidden=True,
    ),
    "mounts": Attack(
        "os.makedirs('/root/m', exist_ok=True); mount('left', '/root/m', 'tmpfs')",
        "see([line.split(' - ')[0].split()[4:] for line in open('/proc/self/mountinfo')])",
        refused=EVERYWHERE,
    ),
    "mounts in namespaces that a bound file keeps": Attack(
        r"""
def bind():
    as_root_of_its_own(MOUNT | NETWORK)
    mount('left', '/mnt', 'tmpfs')
    for name in ('mnt', 'net'):
        write(f'/mnt/{name}', '')
        try: mount(f'/proc/self/ns/{name}', f'/mnt/{name}', None, 4096)
        except OSError:
            if name == 'net': raise
background(bind)
""",
        "see(others(), [line.split()[4] for line in open('/proc/self/mountinfo') if ' nsfs ' in line or 'left' in line])",
        refused=EVERYWHERE,
    ),
}
