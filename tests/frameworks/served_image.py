"""An image with a Python of this machine, the modules that an HTTP server needs, and such a server as its command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.local.oci import entry, layer, one_image

# Answers every path, also /health, with a variable of the sandbox.
SERVER = """
import os
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["ANSWER"].encode())

server = TCPServer(("", int(os.environ["PORT"])), Answer)
"""
BARE = ("-I", "-S", "-c")  # without site-packages
FILES = "import sys\nprint(sys.executable, *filter(None, (getattr(m, '__file__', '') for m in sys.modules.values())))"


def served_image(path: Path) -> Path:
    """Write an OCI archive whose command serves at the variable PORT."""
    python = str(Path(sys.executable).resolve())
    imported = SERVER.partition("\nclass ")[0]
    told = subprocess.run(
        [python, *BARE, f"{imported}\n{FILES}"], capture_output=True, text=True, check=True
    ).stdout
    files = {python, *told.split()}
    for binary in [name for name in files if not name.endswith(".py")]:
        linked = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
        files |= set(re.findall(r"(/[^ ]+)", linked))
    contents = (entry(name.lstrip("/"), Path(name).read_bytes(), mode=0o755) for name in sorted(files))
    config = {"Cmd": [python, *BARE, f"{SERVER}\nserver.serve_forever()"]}
    return one_image([layer(entry("tmp"), entry("proc"), entry("dev"), *contents)], config=config).archive(
        path
    )
