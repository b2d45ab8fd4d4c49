"""Programs that look or ask for what is not the sandbox's own."""

from __future__ import annotations

# Everything of the sidecar that /proc shows; TOKENPART stands for a part of its tokens.
SPY = r"""
import os
found = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('cmdline', 'environ', 'maps', 'status'):
        try:
            data = open(f'/proc/{pid}/{name}', 'rb').read()
        except OSError:
            continue
        if b'TOKENPART' in data or b'sandlot_sidecar' in data and pid != str(os.getpid()):
            found.append((pid, name))
    try:
        links = [os.readlink(f'/proc/{pid}/fd/{fd}') for fd in os.listdir(f'/proc/{pid}/fd')]
    except OSError:
        continue
    if pid == '1' and links:
        found.append((pid, links))
print(found)
"""


# Every route of the sidecar, without its token; then more connections than it lets a stranger keep.
UNAUTHORIZED_CALLS = r"""
import socket, sys
port = int(sys.argv[1])
def ask(method, path, token=None, body=b'{}'):
    s = socket.create_connection(('127.0.0.1', port), 50)
    head = f'{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n'
    if token is not None:
        head += f'Authorization: {token}\r\n'
    s.sendall(head.encode() + b'\r\n' + body)
    data = b''
    while part := s.recv(65536):
        data += part
    return int(data.split()[1])
paths = [('POST', p) for p in ('/v1/claim', '/v1/use', '/v1/orphan', '/v1/end', '/v1/reset', '/v1/exec', '/v1/ops', '/v1/upload', '/v1/tcp?port=22', '/v1/udp?port=22',
         '/v1/files/mkdir', '/v1/ops/x/stdin', '/v1/ops/x/signal')]
paths += [('GET', p) for p in ('/v1/state', '/v1/metrics', '/v1/logs', '/v1/ops', '/v1/files?path=/etc/passwd', '/v1/nothing', '/')]
paths += [('PUT', '/v1/files?path=/x'), ('DELETE', '/v1/ops/x')]
for method, path in paths:
    for token in (None, '', 'Bearer', 'Bearer ', 'Bearer x', 'Basic eDp4', 'Bearer ' + 'a' * 8000):
        status = ask(method, path, token)
        assert status == 401, (method, path, token, status)
print(ask('GET', '/healthz'))
idle = [socket.create_connection(('127.0.0.1', port), 50) for _ in range(600)]
print('held', len(idle))
"""
