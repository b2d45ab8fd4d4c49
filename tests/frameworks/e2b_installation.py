"""What an installation has besides the gateway for E2B's SDKs: a wildcard DNS record, and HTTPS at port 443.

Clients run with a name server of their own, `unshare --mount`, so that the environment variables of users are enough.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cable import cable, running
from tests.certificates import Certificate, issued
from tests.stack import private_stack
from tests.web import web

DOMAIN = "e2b.test"
# Answers each question for an IPv4 address with its first argument, and others with nothing.
NAMES = """
import socket, sys
questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); questions.bind((sys.argv[1], 53))
print("up", flush=True)
while True:
    data, peer = questions.recvfrom(999)
    end = data.index(b"\\0", 12); a = data[end+1:end+3] == b"\\0\\1"
    answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\1\\0\\4" + socket.inet_aton(sys.argv[1]) if a else b""
    questions.sendto(data[:2] + b"\\x81\\x80\\0\\1" + bytes([0, a]) + bytes(4) + data[12:end+5] + answer, peer)
"""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """`address`: of the name server, and of the gateway's HTTPS."""

    address: str
    api_key: str
    image: str  # in which scripts find git, ss, curl, pgrep and Python
    peer: str  # a server outside of the machine or pod of a sandbox, at port 80
    certificate: Certificate
    log: Callable[[], str]  # what a failed test should print
    seconds: float = 300  # in which a client ends

    def run(self, *words: str, environment: Mapping[str, str], cwd: Path) -> str:
        """Run a client by the name server of this installation; return what it printed. A failure shows its errors."""
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(f"nameserver {self.address}\noptions timeout:5 attempts:2\n")
            file.flush()
            bind = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
            done = subprocess.run(
                ["unshare", "--mount", "sh", "-c", bind, file.name, *words],
                env={"PATH": os.environ["PATH"], "HOME": str(cwd), **environment},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.seconds,
                check=False,
            )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}\n{self.log()[-2000:]}"
        return done.stdout


def need_programs(*names: str) -> None:
    """Raise AssertionError, which names those that this machine lacks: sandboxes of its own root use them."""
    lacking = [name for name in names if shutil.which(name) is None]
    assert not lacking, (
        f"this machine lacks {', '.join(lacking)}, which the script runs in sandboxes: install them"
    )


@contextmanager
def free(address: str, port: int) -> Iterator[None]:
    """Raise AssertionError if another program listens there."""
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        text = f"port {port} of {address} is not free ({error.strerror}): end what listens at it"
        raise AssertionError(text) from error
    yield


@contextmanager
def installation(directory: Path, *options: str) -> Iterator[Installation]:
    """A gateway with these options that serves DOMAIN. Needs root, and that nobody listens at port 443."""
    certificate = issued(directory, f"api.{DOMAIN}", f"*.{DOMAIN}")
    with (
        cable("e", network=18) as net,
        web(net.inside, namespace=net.namespace),
        running(NAMES, net.outside),
        free(net.outside, 443),
        private_stack(
            *("--e2b", "--e2b-domain", DOMAIN, *options),
            *("--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key)),
            *("--tls-host", net.outside, "--tls-port", "443"),
        ) as stack,
    ):
        yield Installation(
            address=net.outside,
            api_key=stack.api_key,
            image="host",
            peer=net.inside,
            certificate=certificate,
            log=stack.log,
        )
