"""Sockets, and what code might change of the network that its pod keeps; see `leftovers`."""

from __future__ import annotations

from tests.sidecar.leftovers import EVERYWHERE, Attack

_BIND = r"""
def free(port, kind=socket.SOCK_STREAM, host='127.0.0.1'):
    # Without SO_REUSEADDR: nor may a connection of before linger there.
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    with socket.socket(family, kind) as probe:
        try: probe.bind((host, port)); return 'free'
        except OSError as error: return errno.errorcode[error.errno]
def open_to(port):
    try: socket.create_connection(('127.0.0.1', port), 1).close(); return 'open'
    except OSError as error: return 'closed'
"""
_NETLINK = r"""
def link(kind, body, flags=0x405, family=0):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as sock:
        sock.settimeout(5)
        sock.sendto(struct.pack('=IHHII', 16 + len(body), kind, flags, 1, 0) + body, (0, 0))
        code, = struct.unpack_from('=i', sock.recv(4096), 16)
        if code: raise OSError(-code, 'refused')
def interface(request, data):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock: fcntl.ioctl(sock, request, data)
def add_link(kind):
    info = struct.pack('=HH', 4 + len(kind), 1) + kind + bytes(-len(kind) % 4)
    name = struct.pack('=HH8s', 12, 3, b'planted')
    link(16, struct.pack('=BxHiII', 0, 0, 0, 0, 0) + name + struct.pack('=HH', 4 + len(info), 18) + info)
def add_address(): link(20, struct.pack('=BBBBI', 2, 32, 0, 0, 1) + struct.pack('=HHI', 8, 2, 0x090200c0) + struct.pack('=HHI', 8, 1, 0x090200c0))
def add_route(): link(24, struct.pack('=8BI', 2, 32, 0, 0, 254, 4, 0, 1, 0) + struct.pack('=HHI', 8, 1, 0x010200c0))
def add_rule(): link(32, struct.pack('=8BI', 2, 0, 0, 0, 254, 0, 0, 1, 0))
def add_qdisc(): link(36, struct.pack('=BxHiIII', 0, 0, 1, 0x10000, 0xffffffff, 0) + struct.pack('=HH8s', 12, 1, b'pfifo\0'))
def add_neighbour(): link(28, struct.pack('=BxHiHBB', 2, 0, 1, 0x80, 0, 0) + struct.pack('=HHI', 8, 1, 0x090200c0))
def ip_tables(kind=socket.SOCK_RAW):
    with socket.socket(socket.AF_INET, kind, socket.IPPROTO_RAW if kind == socket.SOCK_RAW else 0) as sock:
        sock.setsockopt(0, 64, bytes(92))
def nf_tables(): link(0xa00, bytes(4), family=12)
def ip_sets(): link(0x602, bytes(4), family=12)
def set_link_down(): interface(0x8914, struct.pack('=16sH14x', b'lo', 0))
def set_address(): interface(0x8916, struct.pack('=16sHHI8x', b'lo', 2, 0, 0x0200007f))
def set_name(): interface(0x8923, struct.pack('=16s16s', b'lo', b'planted'))
def tunnel():
    os.mknod('/dev/tun', stat.S_IFCHR | 0o666, os.makedev(10, 200))
    fcntl.ioctl(os.open('/dev/tun', os.O_RDWR), 0x400454ca, struct.pack('=16sH14x', b'planted', 1))
CHANGES = (lambda: add_link(b'dummy'), lambda: add_link(b'veth'), lambda: add_link(b'bridge'), add_address, add_route, add_rule, add_qdisc,
           add_neighbour, ip_tables, nf_tables, ip_sets, set_link_down, set_address, set_name, tunnel)
def change():
    # Raises if all are refused, else says which is not.
    done = []
    for number, each in enumerate(CHANGES):
        try: each()
        except OSError as error: failure = error
        else: done.append(number)
    if not done: raise failure
    write('/root/changed', repr(done))
"""
# Interfaces, addresses and routes of a pod. The local backend's network is the machine's, which others change meanwhile.
_STATE = r"""
def dump(kind):
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(5)
        sock.sendto(struct.pack('=IHHII', 20, kind, 0x301, 1, 0) + bytes([2, 0, 0, 0]), (0, 0))
        while True:
            data, at = sock.recv(65536), 0
            while at + 16 <= len(data):
                size, answer = struct.unpack_from('=IH', data, at)
                if answer in (2, 3): return sorted(found)
                found.append(data[at + 16:at + size])
                at += size + 3 & ~3
def state():
    names = [line.split(b':')[0].strip() for line in read('/proc/net/dev').splitlines()]
    # Without what IPv6 changes by itself for a while after an interface is up.
    six = sorted((line.split()[0], line.split()[-1]) for line in read('/proc/net/if_inet6').splitlines()[:99] if line[:4] != b'fe80' and b' ' in line)
    up = [each[4] for each in dump(18) if each[8] & 1]
    found = [names, up, six, dump(22), dump(26), read('/proc/net/ip_tables_names')]
    return hashlib.sha256(repr(found).encode()).hexdigest()
see(read('/root/changed'), state() if SHAPE != 'local' else '')
"""

SOCKETS = {
    "a server on TCP": Attack(
        "background(lambda: globals().update(held=socket.create_server(('127.0.0.1', PORT))))",
        _BIND + "see(free(PORT), open_to(PORT))",
    ),
    "a server on TCP, IPv6 and shared": Attack(
        r"""
def hold():
    global held
    held = socket.socket(socket.AF_INET6)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); held.bind(('::', PORT + 1)); held.listen()
background(hold)
""",
        _BIND + "see(free(PORT + 1, host='::'))",
    ),
    "a server on UDP": Attack(
        r"""
def hold():
    global held
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); held.bind(('127.0.0.1', PORT + 2))
background(hold)
""",
        _BIND + "see(free(PORT + 2, socket.SOCK_DGRAM))",
    ),
    "a connection that waits after its end": Attack(
        r"""
server = socket.create_server(('127.0.0.1', PORT + 3))
client = socket.create_connection(('127.0.0.1', PORT + 3)); accepted, _ = server.accept()
accepted.close(); client.recv(1); client.close(); server.close()
""",
        _BIND + "see(free(PORT + 3))",
        stays=True,
    ),
    "data that nobody has read": Attack(
        r"""
def send():
    global server, accepted, client
    server = socket.create_server(('127.0.0.1', PORT + 4))
    client = socket.create_connection(('127.0.0.1', PORT + 4)); accepted, _ = server.accept()
    client.setblocking(False)
    try:
        while True: client.send(bytes(65536))
    except BlockingIOError: pass
background(send)
""",
        _BIND + "see(free(PORT + 4))",
        stays=True,
    ),
    "a Unix socket": Attack(
        r"""
def hold():
    global held
    held = socket.socket(socket.AF_UNIX); held.bind('/root/server'); held.listen()
background(hold)
""",
        "see(os.path.exists('/root/server'), b'/root/server' in read('/proc/net/unix'))",
    ),
    "an abstract socket": Attack(
        r"""
def hold():
    global held
    held = socket.socket(socket.AF_UNIX); held.bind(b'\0left-%d' % PORT); held.listen()
background(hold)
""",
        r"""
with socket.socket(socket.AF_UNIX) as probe:
    try: probe.bind(b'\0left-%d' % PORT); see('free')
    except OSError: see('held')
""",
    ),
    "a subscription to the kernel's news": Attack(
        r"""
def hold():
    global held
    held = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); held.bind((0, 1))
background(hold)
""",
        "see(mine())",
    ),
    "a group of many listeners": Attack(
        r"""
def hold():
    global held
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    held.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.255.77.77') + socket.inet_aton('127.0.0.1'))
background(hold)
""",
        "see(mine())",
    ),
    "a raw socket": Attack(
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)", "see('')", refused=EVERYWHERE
    ),
    "a packet socket": Attack(
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768)", "see('')", refused=EVERYWHERE
    ),
}
# Addresses, interfaces, routes, rules, queues, neighbours, packet filters, sets; each by every way that there is.
CHANGES = {
    "the network, as root": Attack(_NETLINK + "change()", _STATE, refused=EVERYWHERE),
    "the network, as root of a user namespace": Attack(
        _NETLINK + "as_root_of_its_own(); change()", _STATE, refused=EVERYWHERE
    ),
    "the network, by a socket of another": Attack(
        r"""
near, far = socket.socketpair()
if os.fork() == 0:
    try:
        as_root_of_its_own(NETWORK)
        made = [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
        socket.send_fds(far, [b'x'], [each.fileno() for each in made])
        os.read(far.fileno(), 1)
    finally: os._exit(0)
far.close()
_, fds, _, _ = socket.recv_fds(near, 1, 2)
if not fds: raise OSError(1, 'no user namespace')
given = [socket.socket(fileno=fd) for fd in fds]
"""
        + _NETLINK.replace(
            "with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as sock:",
            "sock = given[0]\n    if family == 0:",
        )
        .replace("with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock: fcntl", "fcntl")
        .replace("fcntl.ioctl(sock, request", "fcntl.ioctl(given[1], request")
        + "change()",
        _STATE,
        refused=EVERYWHERE,
    ),
}
