"""SSH into a sandbox: a real OpenSSH client, with Prime's line before it and without, and Prime's own command."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import plain_http
from tests.prime.conftest import client_python
from tests.prime.server import Server
from tests.prime_rpc.support import Box
from tests.waiting import SECONDS, wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (shutil.which("ssh") and shutil.which("ssh-keygen")), reason="needs the package openssh-client"
    ),
]

QUIET = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")


class Api:
    """The routes of one sandbox's SSH sessions."""

    def __init__(self, server: Server, sandbox_id: str) -> None:
        self._path = f"{server.url}/api/v1/sandbox/{sandbox_id}/ssh-session"
        self._headers = {"Authorization": f"Bearer {server.api_key}"}

    def post(self, **body: object) -> httpx.Response:
        return plain_http.post(self._path, headers=self._headers, json=body, timeout=SECONDS)

    def delete(self, session_id: str) -> httpx.Response:
        return plain_http.delete(f"{self._path}/{session_id}", headers=self._headers, timeout=SECONDS)


class Ssh:
    """A key, and the session that lets it in."""

    def __init__(self, api: Api, directory: Path, **more: object) -> None:
        self.api = api
        self.key = make_key(directory)
        answer = api.post(public_key=self.key.with_suffix(".pub").read_text(), **more)
        assert answer.status_code == 200, answer.text
        self.session = answer.json()

    @property
    def id(self) -> str:
        return self.session["session_id"]

    def command(self, *arguments: str, key: Path | None = None) -> list[str]:
        target = f"{self.id}@{self.session['host']}"
        port = str(self.session["port"])
        options = ("-i", str(key or self.key), "-o", "IdentitiesOnly=yes", *QUIET)
        return ["ssh", "-F", "none", "-p", port, *options, target, *arguments]

    def run(self, *arguments: str, key: Path | None = None, stdin: bytes | None = None):
        return subprocess.run(
            self.command(*arguments, key=key),
            input=stdin or b"",
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*arguments), stdin=pipe, stdout=pipe, stderr=pipe)


def make_key(directory: Path) -> Path:
    path = directory / f"key-{len(os.listdir(directory))}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def ssh(server: Server, box: Box, directory: Path) -> Iterator[Ssh]:
    made = Ssh(Api(server, box.sandbox_id), directory)
    yield made
    made.api.delete(made.id)


def ended(process: subprocess.Popen[bytes]) -> int:
    with process:
        process.communicate(timeout=SECONDS)
    return process.returncode


def test_a_command_has_its_streams_and_its_exit_code(ssh: Ssh):
    done = ssh.run("cat; echo err >&2; exit 3", stdin=b"from here\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"from here\n", b"err\n")


async def test_it_is_the_sandbox_of_the_session(ssh: Ssh, box: Box):
    assert ssh.run("echo over there > /tmp/left-by-ssh").returncode == 0
    assert (await box.run("cat /tmp/left-by-ssh")).stdout == b"over there\n"


def test_a_command_that_a_signal_ends_is_told_so(ssh: Ssh):
    assert ssh.run("kill -9 $$").returncode == 255


def test_bytes_go_through_unchanged_both_ways(ssh: Ssh):
    content = os.urandom(5_000_000)
    assert ssh.run("cat", stdin=content).stdout == content


def test_a_command_that_does_not_read_holds_its_input_back(ssh: Ssh):
    content = b"x" * 3_000_000
    done = ssh.run("read -n 1 first; sleep 0.5; wc -c", stdin=content)
    assert done.stdout == b"2999999\n"


def test_a_shell_reads_its_commands(ssh: Ssh):
    done = ssh.run(stdin=b"cd /tmp\npwd\nexit 4\n")
    assert (done.returncode, done.stdout) == (4, b"/tmp\n")


def test_a_terminal_is_one(ssh: Ssh):
    with ssh.start("-tt") as shell:
        assert shell.stdin is not None
        shell.stdin.write(b"test -t 0 && echo is$((1))a; stty size; exit 5\n")
        shell.stdin.flush()
        output, _ = shell.communicate(timeout=SECONDS)
    assert b"is1a" in output
    assert shell.returncode == 5


def test_a_command_goes_with_its_client(ssh: Ssh, box: Box):
    client = ssh.start("echo up; exec sleep 7331")
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    client.kill()
    ended(client)
    wait_until(lambda: not ssh.run("pgrep -xf 'sleep 7331'").stdout)


def test_a_port_of_the_sandbox_is_forwarded_and_no_other_host_s(ssh: Ssh):
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "c = s.accept()[0]; c.sendall(b'hello ' + c.recv(99)); c.close()"
    )
    server = ssh.start(f'python3 -c "{serve}"')
    assert server.stdout is not None
    port = int(server.stdout.readline())
    there = ssh.run("-W", f"127.0.0.1:{port}", stdin=b"you")
    assert there.stdout == b"hello you", there.stderr
    assert ended(server) == 0
    refused = ssh.run("-W", f"192.0.2.1:{port}")
    assert refused.returncode == 255
    assert b"stdio forwarding failed" in refused.stderr, refused.stderr


def test_sockets_on_the_gateways_machine_are_refused(ssh: Ssh):
    for listening, named in (("0", b"port 0"), (path := "/tmp/not-a-socket-of-the-machine", b"path")):
        done = ssh.run("-o", "ExitOnForwardFailure=yes", "-R", f"{listening}:127.0.0.1:1", "echo ran")
        assert (done.returncode, done.stdout) == (255, b"")
        assert b"remote port forwarding failed for listen " + named in done.stderr
    assert not Path(path).exists()


def test_files_by_sftp_need_the_images_own_server(ssh: Ssh):
    found = ssh.run("ls -d /usr/lib/openssh/sftp-server /usr/libexec/sftp-server 2> /dev/null").stdout
    done = ssh.run("-s", "sftp")
    assert done.returncode == (0 if found else 127)
    assert (b"this image has no sftp-server" in done.stderr) == (not found)


def test_only_the_sessions_key_gets_in(ssh: Ssh, directory: Path):
    other = make_key(directory)
    done = ssh.run("true", key=other)
    assert done.returncode == 255
    assert b"Permission denied" in done.stderr


def test_prime_s_line_names_the_session_and_no_other(ssh: Ssh):
    where = (ssh.session["host"], ssh.session["port"])
    with socket.create_connection(where, timeout=SECONDS) as raw:
        raw.sendall(f"PRIME-SSH-SESSION {ssh.id}\n".encode())
        assert raw.recv(8) == b"SSH-2.0-"
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"PRIME-SSH-SESSION " + b"x" * 200):
        with socket.create_connection(where, timeout=SECONDS) as raw, contextlib.suppress(ConnectionError):
            raw.sendall(nonsense)
            assert b"HTTP" not in raw.recv(100)


def test_a_session_that_was_closed_lets_nobody_in_and_cuts_who_is(ssh: Ssh):
    client = ssh.start("echo up; exec sleep 100")
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    answer = ssh.api.delete(ssh.id)
    assert answer.json() == {"success": True, "message": "removed"}
    assert ended(client) == 255
    assert b"Permission denied" in ssh.run("true").stderr
    assert ssh.api.delete(ssh.id).status_code == 404


def test_a_session_s_time_ends_for_those_to_come(server: Server, box: Box, directory: Path):
    short = Ssh(Api(server, box.sandbox_id), directory, ttl_seconds=1)
    assert short.session["ttl_seconds"] == 1
    wait_until(lambda: short.run("true").returncode != 0)
    assert b"Permission denied" in short.run("true").stderr


def test_the_end_of_the_sandbox_is_the_end_of_its_sessions(server: Server, new_box, directory: Path):
    box = new_box()
    made = Ssh(Api(server, box.sandbox_id), directory)
    client = made.start("echo up; exec sleep 100")
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    box.delete()
    assert ended(client) != 0
    key = made.key.with_suffix(".pub").read_text()
    assert made.api.post(public_key=key).status_code == 409


def test_what_cannot_be_is_refused(server: Server, box: Box, ssh: Ssh):
    for body, status, words in (
        ({"public_key": "nonsense"}, 422, "public_key: must be one public key"),
        ({"public_key": "ssh-ed25519 AAAA x"}, 422, "public_key: must be one public key"),
        ({"public_key": "x", "ttl_seconds": 3601}, 422, "ttl_seconds"),
        ({"ttl_seconds": 900}, 422, "public_key: required; update clients before 0.4"),
    ):
        answer = ssh.api.post(**body)
        assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text
    unknown = Api(server, "sb-00000000000000000000")
    assert unknown.post(public_key="x").status_code == 404
    assert unknown.delete(ssh.id).status_code == 404


@pytest.mark.clients
@pytest.mark.slow
def test_prime_s_own_command_gets_in(server: Server, box: Box, directory: Path):
    program = client_python("prime", "0.18.0", also=("prime-sandboxes==0.5.1",)).with_name("prime")
    variables = server.variables(directory)
    done = subprocess.run(
        [str(program), "sandbox", "ssh", box.sandbox_id, "--", "echo in there; exit 6"],
        env=variables | {"PRIME_DISABLE_VERSION_CHECK": "1"},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (6, "in there\n"), done.stderr
