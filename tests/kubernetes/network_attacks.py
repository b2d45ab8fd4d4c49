"""Programs that code in a sandbox may run to get at its network: its filter, who answers, its sidecar's port."""

from __future__ import annotations

# Tries to write its pod's packet filter and to bear the sidecar's mark, also by way of a user namespace's own network,
# where it has every capability: a kernel must ask about the network that is changed.
UNDO = r"""
import ctypes, json, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
got = []
REPLACE = 64
def attempt(name, function, *arguments):
    try:
        function(*arguments)
    except OSError:
        return
    got.append(name)
def entry(header, target):
    counters = bytes(16 if len(header) == 84 else 20)
    to_target = len(header) + 12 + len(counters)
    return header + struct.pack('=IHHI', 0, to_target, to_target + len(target), 0) + counters + target
def everything(size):
    accept = entry(bytes(size), struct.pack('=H29sBi4x', 40, b'', 0, -2))
    entries = [accept] * 3 + [entry(bytes(size), struct.pack('=H29sB30s2x', 64, b'ERROR', 0, b'ERROR'))]
    starts = (0, 0, len(accept), 2 * len(accept), 0)
    whole = b''.join(entries)
    return struct.pack('=32sIII5I5IIQ', b'filter', 14, 4, len(whole), *starts, *starts, 4, 0) + whole
def open_filter(four, six):
    attempt('the IPv4 filter', four.setsockopt, socket.IPPROTO_IP, REPLACE, everything(84))
    attempt('the IPv6 filter', six.setsockopt, socket.IPPROTO_IPV6, REPLACE, everything(136))
def raw():
    return [socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) for family in (socket.AF_INET, socket.AF_INET6)]
def mark(sock):
    for number in (1, 0x5A4D):
        attempt('a mark', sock.setsockopt, socket.SOL_SOCKET, socket.SO_MARK, number)
def unshare(flags):
    if libc.unshare(flags) < 0:
        raise OSError(ctypes.get_errno(), 'unshare')
def beside(work):
    # What a child says that it got.
    read, write = os.pipe()
    if os.fork() == 0:
        got.clear()
        try:
            work()
        except OSError:
            pass
        os.write(write, json.dumps(got).encode())
        os._exit(0)
    os.close(write)
    got.extend(json.load(os.fdopen(read)))
    os.wait()
attempt('raw sockets', lambda: open_filter(*raw()))
attempt('a packet socket', socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mark(ours)
USER, NET = 0x10000000, 0x40000000
def marked_from_elsewhere():
    unshare(USER | NET)
    mark(ours)
beside(marked_from_elsewhere)
def raw_as_its_own_root():
    unshare(USER)
    open_filter(*raw())
beside(raw_as_its_own_root)
# Raw sockets of a network of one's own, used where the pod's is: by who is not its owner's child, and by who is.
for first in (0, USER):
    def given_raw():
        near, far = socket.socketpair()
        if first:
            unshare(first)
        if os.fork() == 0:
            near.close()
            try:
                unshare(NET if first else USER | NET)
                sockets = raw()
                socket.send_fds(far, [b'x'], [each.fileno() for each in sockets])
                os.read(far.fileno(), 1)
            finally:
                os._exit(0)
        far.close()
        _, fds, _, _ = socket.recv_fds(near, 1, 2)
        if fds:
            open_filter(*(socket.socket(fileno=fd) for fd in fds))
        near.close()
        os.wait()
    beside(given_raw)
print(json.dumps(sorted(set(got))))
"""

# Whether a connection is taken: name, host and port of each come as JSON.
CONNECT = r"""
import json, socket, sys, threading
targets = json.loads(sys.argv[1])
answers = {}
def attempt(name, host, port):
    try:
        with socket.create_connection((host, port), 8):
            answers[name] = True
    except OSError:
        answers[name] = False
threads = [threading.Thread(target=attempt, args=(name, *where)) for name, where in targets.items()]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(answers))
"""

# Tries to listen where the sidecar does, so as to be taken for it.
SQUAT = r"""
import json, socket, sys
got = []
hosts = [(socket.AF_INET, host) for host in ('0.0.0.0', '127.0.0.1', sys.argv[1])]
hosts += [(socket.AF_INET6, host) for host in ('::', '::ffff:127.0.0.1', '::ffff:' + sys.argv[1])]
for family, host in hosts:
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            try:
                for option in options:
                    sock.setsockopt(socket.SOL_SOCKET, option, 1)
                sock.bind((host, 8700))
                sock.listen()
            except OSError:
                continue
            got.append([host, list(map(int, options))])
print(json.dumps(got))
"""
