"""The node agent as a program on a containerd of the tests' own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests import plain_http
from tests.node.registries import OPEN
from tests.ports import free_port
from tests.waiting import SECONDS, wait_until

TOKEN = "a token of the tests"
SLOW = "slow.example"  # the open registry behind a relay


class Program:
    """`python -m sandlot_node` on a containerd, with its directories in `directory`."""

    def __init__(self, directory: Path, socket: Path, **settings: str) -> None:
        """`socket`: containerd's. `settings`: by the names of their variables."""
        self.images = directory / "images"
        self.images.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (directory / "token").write_text(f"{TOKEN}\n")
        self._log = directory / "agent.log"
        self._environment = {
            "PATH": os.environ["PATH"],
            "SANDLOT_TOKEN_FILE": str(directory / "token"),
            "SANDLOT_CONTAINERD": str(socket),
            "SANDLOT_IMAGES": str(self.images),
            "SANDLOT_STATE": str(directory / "state"),
            "SANDLOT_REGISTRIES": f'["{OPEN}", "{SLOW}"]',
            "SANDLOT_MIN_FREE": "0",
            "SANDLOT_HOST": "127.0.0.1",
            "SANDLOT_PORT": str(self.port),
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.begin()
        wait_until(self._answers, what=str(self._log))

    def begin(self) -> None:
        """Start it, and do not wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sandlot_node"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _answers(self) -> bool:
        try:
            return plain_http.get(f"{self.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def call(self, method: str, path: str, *, body: dict[str, Any] | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return plain_http.request(method, f"{self.url}{path}", headers=headers, timeout=60, json=body)

    def prepare(self, image: str, **more: Any) -> httpx.Response:
        """Ask until it is there or has failed: a call waits for half a minute at most."""

        def answer() -> httpx.Response | None:
            found = self.call("POST", "/v1/images?wait=30", body={"image": image, **more})
            return None if found.status_code == 202 else found

        return wait_until(answer, what=f"{image} is prepared")

    def end(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(SECONDS)
        self._process = None
        return code

    def clear(self) -> None:
        if self._process is None:
            self.start()
        for image in self.call("GET", "/v1/images").json()["images"]:
            for slot in image["uses"]:
                self.call("DELETE", f"/v1/images/{image['id']}/uses/{slot}")
            self.call("DELETE", f"/v1/images/{image['id']}")
        self.end(signal.SIGKILL)
