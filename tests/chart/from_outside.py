"""What a client does through a proxy, by the proxy's host names: `python -m tests.chart.from_outside all|silence URL HOST`.

HOST is another name that leads to the same gateway. A buffered body would make a step wait for ever: the process then ends
by itself, and says where it was.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

import websockets.sync.client
from sandlot import Client, Sandbox, Stderr, Stdout

from tests.ports import free_port

MEBIBYTES = 8
_LONGEST = 200.0  # seconds
# The second event comes when somebody has asked for /more.
APP = """
import http.server, sys, threading
asked = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if self.path == "/more":
            asked.set()
            return
        self.wfile.write(b"data: one\\n\\n")
        asked.wait()
        self.wfile.write(b"data: two\\n\\n")
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("listening", flush=True)
server.serve_forever()
"""


def main(what: str, url: str, other: str) -> None:
    """Does it, and says so. `silence` is through a proxy that gives up on a response after a second without a byte."""
    faulthandler.dump_traceback_later(_LONGEST, exit=True)
    with (
        Client(url=url, api_key=os.environ["SANDLOT_API_KEY"]) as client,
        Sandbox.create(client=client) as box,
    ):
        if what == "silence":
            a_silent_command(url, box)
        else:
            assert box.exec("echo created").stdout == "created\n"
            output_comes_at_once(box)
            a_terminal(url, box)
            a_large_file(box)
            events_of_an_app(box, other)
    print(f"done: {what}")


def key() -> dict[str, str]:
    return {"Authorization": f"Bearer {os.environ['SANDLOT_API_KEY']}"}


def a_silent_command(url: str, box: Sandbox) -> None:
    """Whoever does not ask again has the proxy's error; the SDK does, and the command runs once."""
    body = json.dumps({"command": "sleep 2"}).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(f"{url}/sbx/{box.id}/exec", body, key()), timeout=60)
    except urllib.error.HTTPError as error:
        assert error.code == 504, error
    else:
        raise AssertionError("the proxy has waited")
    assert box.exec("echo ran >> /tmp/runs; sleep 2; cat /tmp/runs").stdout == "ran\n"


def output_comes_at_once(box: Sandbox) -> None:
    with box.start("cat") as process:
        for line in ("first\n", "second\n"):
            process.write(line)
            event = next(event for event in process if isinstance(event, Stdout | Stderr))
            assert event.text == line, event


def a_terminal(url: str, box: Sandbox) -> None:
    address = f"{url.replace('http', 'ws', 1)}/sbx/{box.id}/terminal?command=sh"
    with websockets.sync.client.connect(address, additional_headers=key(), proxy=None) as terminal:
        assert "op_id" in json.loads(terminal.recv())
        terminal.send(b"expr 6 \\* 7; exit\n")
        said = b""
        for message in terminal:
            if isinstance(message, str):
                assert json.loads(message)["exit"]["exit_code"] == 0
                break
            said += message
    assert b"42" in said, said


def a_large_file(box: Sandbox) -> None:
    data = os.urandom(1024 * 1024) * MEBIBYTES
    box.files.write("/tmp/large", data)
    assert box.files.read("/tmp/large") == data


def events_of_an_app(box: Sandbox, other: str) -> None:
    port = free_port()  # sandboxes of one machine share its network
    process = box.start(["python3", "-c", APP, str(port)], stdin=False)
    with process:
        assert any(isinstance(event, Stdout) and "listening" in event.text for event in process)
        exposed = box.expose(port).rstrip("/")
        there = urllib.parse.urlsplit(exposed)
        elsewhere = there._replace(netloc=f"{other}:{there.port}").geturl()
        with urllib.request.urlopen(f"{exposed}/events", timeout=60) as events:
            assert events.readline() == b"data: one\n"
            with urllib.request.urlopen(f"{elsewhere}/more", timeout=60) as more:
                assert more.status == 200
            assert events.read() == b"\ndata: two\n\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
