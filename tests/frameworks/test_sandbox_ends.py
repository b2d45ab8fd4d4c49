"""Sandboxes of objects that a framework drops or still has at the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sandlot import Client, Sandbox

from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

OWNERS = """
import sys
import sandlot
from sandlot.integrations._ended import SandboxEnd

class Owner:
    def __init__(self):
        self.end = SandboxEnd(self, sandlot.Sandbox.create(labels=["owned"]))

dropped, told, left, kept = (Owner() for _ in range(4))
told.end.now()
told.end.now()
left.left = left  # only a garbage collection or the end of the process finds it
del dropped, left
print("made", flush=True)
sys.stdin.read()
"""


def owned(stack: Stack) -> int:
    with Client(url=stack.url, api_key=stack.api_key) as client:
        return len(Sandbox.list(labels=["owned"], client=client))


def test_sandboxes_end_with_their_owners_and_with_the_process(stack: Stack) -> None:
    settings = {**os.environ, "SANDLOT_URL": stack.url, "SANDLOT_API_KEY": stack.api_key}
    words = [sys.executable, "-X", "dev", "-W", "error", "-c", OWNERS]
    with subprocess.Popen(
        words, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        wait_until(lambda: owned(stack) == 2)
        told = process.communicate(timeout=200)
    assert (told, process.returncode, owned(stack)) == (("", ""), 0, 0)
