"""`sandlot doctor --cluster` on a release of a test's own, and faults of that release that end with their block."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.complaints import WARNINGS_SHOWN, assert_no_complaints
from tests.kubernetes.boxes import POOLED, until
from tests.kubernetes.stack import IMAGE, Stack, program

# Which the API server sets: an object without them replaces whatever is there.
_SET_BY_THE_SERVER = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields")


def sandlot(
    stack: Stack, *words: str, directory: Path, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """The command line, about this release."""
    context = ("--context", stack.context) if stack.context else ()
    where = ("--kubeconfig", stack.kubeconfig, *context, "--namespace", stack.namespace)
    path = f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "sandlot", *words, *where],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=directory,
        env={**os.environ, "PATH": path, **WARNINGS_SHOWN},
    )
    assert_no_complaints(done.stderr)
    return done


def findings(stack: Stack, directory: Path) -> tuple[int, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDLOT_API_KEY", stack.api_key)
        done = sandlot(stack, "doctor", "--cluster", "--json", directory=directory)
    assert done.stdout, done.stderr
    return done.returncode, {each["name"]: each for each in json.loads(done.stdout)["checks"]}


def wrong(stack: Stack, directory: Path) -> dict[str, Any]:
    """What is not ok, also what could not be checked; without the nodes, which other tests use at the same time."""
    _, found = findings(stack, directory)
    told = {name: each for name, each in found.items() if each["state"] != "ok"}
    shared = ("node ", "nodes", "other nodes", "clock of ")
    return {name: each for name, each in told.items() if not name.startswith(shared)}


def told_alone(
    stack: Stack, names: set[str], directory: Path, *, perhaps: Set[str] = frozenset()
) -> dict[str, Any]:
    """Waits until the doctor tells of these problems, and of no other but `perhaps` of those."""
    told: dict[str, Any] = {}

    def only_these() -> bool:
        nonlocal told
        told = wrong(stack, directory)
        return names <= set(told) <= names | perhaps

    try:
        until(only_these, seconds=150)
    except AssertionError:
        pytest.fail(json.dumps(told, indent=1))
    return told


@contextmanager
def replaced(
    stack: Stack, kind: str, name: str, namespace: str, change: Callable[[dict[str, Any]], None]
) -> Iterator[None]:
    """An object with this change made to it."""
    before = _kept(stack, kind, name, namespace)
    after = copy.deepcopy(before)
    change(after)
    stack.kubectl("replace", "-f", "-", stdin=json.dumps(after))
    try:
        yield
    finally:
        stack.kubectl("replace", "-f", "-", stdin=json.dumps(before))


@contextmanager
def removed(stack: Stack, kind: str, name: str, namespace: str) -> Iterator[None]:
    """Without an object."""
    before = _kept(stack, kind, name, namespace)
    stack.kubectl("delete", kind, name, "-n", namespace)
    try:
        yield
    finally:
        stack.kubectl("create", "-f", "-", stdin=json.dumps(before))


@contextmanager
def applied(stack: Stack, document: dict[str, Any]) -> Iterator[None]:
    """With one more object in the sandboxes' namespace."""
    document["metadata"]["namespace"] = stack.sandboxes
    stack.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    try:
        yield
    finally:
        stack.kubectl("delete", "-f", "-", stdin=json.dumps(document))


def pool(name: str, **template: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": name},
        "spec": {"size": 1, "template": {"image": IMAGE, **POOLED, **template}},
    }


def replace_pods(stack: Stack) -> None:
    """Ends the pool's pods, and waits until it has others."""
    selector = "sandlot.dev/pool=default"
    words = ("pods", "-n", stack.sandboxes, "-l", selector)
    before = {each["metadata"]["uid"] for each in stack.get(*words)["items"]}
    # Not as many as now: one whose sandbox has ended may have come back as well.
    size = stack.get("sandboxpool", "default", "-n", stack.sandboxes)["spec"]["size"]
    stack.kubectl("delete", *words, "--wait=false")

    def others() -> bool:
        now = {each["metadata"]["uid"]: each for each in stack.get(*words)["items"]}
        return len(now) == size and not before & now.keys() and all(map(_is_running, now.values()))

    until(others, seconds=180)


def _is_running(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running"


def _kept(stack: Stack, kind: str, name: str, namespace: str) -> dict[str, Any]:
    found = stack.get(kind, name, "-n", namespace)
    for field in _SET_BY_THE_SERVER:
        found["metadata"].pop(field, None)
    return found
