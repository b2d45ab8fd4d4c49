"""A cable from a network namespace, for a pod to be made in, to servers on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.probe import SERVER


@dataclass(frozen=True)
class Cable:
    """The addresses of the servers, that of the pod, and its namespace's path."""

    there: str
    there6: str
    here: str
    namespace: str


@contextmanager
def cable() -> Iterator[Cable]:
    """For one pod: runsc takes the addresses away. Needs root and the program ip; the servers are those of `tests.probe`."""
    number = os.getpid() % 250
    name, near, far = f"sandlot-pod-{os.getpid()}", f"slp{os.getpid()}", f"slq{os.getpid()}"
    net, net6 = f"198.19.{number}", f"fd5b:{number:x}:"
    made = Cable(there=f"{net}.1", there6=f"{net6}:1", here=f"{net}.2", namespace=f"/run/netns/{name}")

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    ip("netns", "add", name)
    server = None
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        ip("addr", "add", f"{made.there}/30", "dev", near)
        ip("addr", "add", f"{made.there6}/64", "dev", near, "nodad")
        ip("link", "set", near, "up")
        ip("-n", name, "addr", "add", f"{made.here}/30", "dev", far)
        ip("-n", name, "addr", "add", f"{net6}:2/64", "dev", far, "nodad")
        ip("-n", name, "link", "set", far, "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "route", "add", "default", "via", made.there)
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", SERVER, made.there, made.there6]
        server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        yield made
    finally:
        if server is not None:
            server.kill()
            server.communicate()
        subprocess.run(["ip", "link", "del", near], check=False, capture_output=True)
        ip("netns", "del", name)
