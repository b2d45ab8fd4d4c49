"""Sandbox and SandboxPool by kubectl alone: applied by hand, shown in columns, refused with a clear word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sandlot import Client, Sandbox

from tests.cluster.shell import CommandFailed
from tests.kubernetes.boxes import resource_of, resources, until, warm
from tests.kubernetes.killing import pool_is_warm_everywhere
from tests.kubernetes.pools import REPLACED
from tests.kubernetes.stack import IMAGE, Stack

TEMPLATE = {"image": IMAGE, "cpu": 0.5, "memory": 128 << 20, "disk": 256 << 20}


def manifest(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps(
        {"apiVersion": "sandlot.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    )


def table(stack: Stack, kind: str, name: str) -> dict[str, str]:
    """What `kubectl get` prints of it, by column."""
    head, line = stack.kubectl("get", kind, name, "-n", stack.sandboxes).splitlines()
    columns = [(found.group(), found.start()) for found in re.finditer(r"\S+", head)]
    ends = [start for _, start in columns[1:]] + [len(line)]
    return {column: line[start:end].strip() for (column, start), end in zip(columns, ends, strict=True)}


@contextmanager
def applied(stack: Stack, kind: str, name: str, spec: dict[str, Any]) -> Iterator[None]:
    stack.kubectl("apply", "-n", stack.sandboxes, "-f", "-", stdin=manifest(kind, name, spec))
    try:
        yield
    finally:
        stack.kubectl("delete", kind, name, "-n", stack.sandboxes, "--ignore-not-found", "--timeout=240s")


def status(stack: Stack, kind: str, name: str) -> dict[str, Any]:
    return stack.get(kind, name, "-n", stack.sandboxes).get("status", {})


def pods(stack: Stack, selector: str) -> list[str]:
    found = stack.get("pods", "-n", stack.sandboxes, "-l", selector)["items"]
    return [pod["metadata"]["name"] for pod in found]


def test_a_sandbox_applied_by_hand_gets_a_pod_and_takes_it_along(stack: Stack) -> None:
    name = "by-hand"
    with applied(stack, "Sandbox", name, {"template": TEMPLATE}):
        until(lambda: status(stack, "sandboxes", name).get("phase") == "Running")
        shown = table(stack, "sandboxes", name)
        assert (shown["NAME"], shown["PHASE"], shown["VERDICT"]) == (name, "Running", "")
        assert shown["NODE"] == status(stack, "sandboxes", name)["nodeName"]
        assert shown["AGE"][-1] in "sm"
        ready = [each for each in status(stack, "sandboxes", name)["conditions"] if each["type"] == "Ready"]
        assert ready[0]["status"] == "True"
        assert pods(stack, f"sandlot.dev/for={name}") == [name]
        # The short name and the category lead to it too.
        assert name in stack.kubectl("get", "sbx", "-n", stack.sandboxes)
        assert name in stack.kubectl("get", "sandlot", "-n", stack.sandboxes)
    until(lambda: pods(stack, f"sandlot.dev/for={name}") == [])


def test_the_end_is_shown(stack: Stack, client: Client) -> None:
    box = warm(client)
    name = resource_of(stack, box)["metadata"]["name"]
    box.delete()
    until(lambda: status(stack, "sandboxes", name).get("phase") == "Ended")
    shown = table(stack, "sandboxes", name)
    assert (shown["PHASE"], shown["VERDICT"]) == ("Ended", "deleted")


@pytest.mark.parametrize("stack", ["runc"], indirect=True)
def test_a_pool_applied_by_hand_fills_and_is_claimed_from(stack: Stack, client: Client) -> None:
    name = "by-hand"
    # A pool that reuses its pods keeps those beyond its size for a minute.
    with applied(stack, "SandboxPool", name, {"template": TEMPLATE, "size": 1, "reuse": REPLACED}):
        until(lambda: status(stack, "sandboxpools", name).get("ready") == 1)
        until(lambda: table(stack, "sandboxpools", name)["READY"] == "1")
        shown = table(stack, "sandboxpools", name)
        assert shown["SIZE"] == "1"
        assert {shown["STARTING"], shown["CLAIMED"]} <= {"0", ""}
        (pod,) = pods(stack, f"sandlot.dev/pool={name}")
        until(lambda: pool_is_warm_everywhere(stack, name))
        with Sandbox.create(IMAGE, client=client, cpu=0.5, memory=128 << 20, disk=256 << 20) as box:
            assert box.info.pool_hit
            assert box.exec("echo from the pool", timeout=30).stdout == "from the pool\n"
            until(lambda: [each for each in resources(stack) if each["spec"].get("podName") == pod])
            changed = {"template": TEMPLATE, "size": 0, "reuse": REPLACED}
            stack.kubectl(
                "apply", "-n", stack.sandboxes, "-f", "-", stdin=manifest("SandboxPool", name, changed)
            )
            until(lambda: pods(stack, f"sandlot.dev/pool={name}") == [pod])
            assert box.exec("echo lives on", timeout=30).stdout == "lives on\n"
    until(lambda: pods(stack, f"sandlot.dev/pool={name}") == [])


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("Sandbox", {}, "spec.template: Required value"),
    ("Sandbox", {"template": {}}, "spec.template.image: Required value"),
    ("Sandbox", {"template": {"image": "a b"}}, "spec.template.image"),
    ("Sandbox", {"template": {**TEMPLATE, "cpu": 0}}, "spec.template.cpu"),
    ("Sandbox", {"template": {**TEMPLATE, "memory": 1}}, "spec.template.memory"),
    ("Sandbox", {"template": {**TEMPLATE, "gpuType": "h100"}}, "gpuType needs a gpuCount above 0"),
    ("Sandbox", {"template": {**TEMPLATE, "colour": "red"}}, 'unknown field "spec.template.colour"'),
    ("SandboxPool", {"template": TEMPLATE}, "either size, or minSize and maxSize, must be set"),
    ("SandboxPool", {"template": TEMPLATE, "size": 1, "maxSize": 2}, "either size, or minSize and maxSize"),
    ("SandboxPool", {"template": TEMPLATE, "minSize": 1}, "minSize and maxSize go together"),
    ("SandboxPool", {"template": TEMPLATE, "minSize": 3, "maxSize": 2}, "minSize must not be above maxSize"),
    ("SandboxPool", {"template": TEMPLATE, "size": -1}, "spec.size"),
]


@pytest.mark.parametrize("stack", ["runc"], indirect=True)
def test_a_bad_one_is_refused_with_the_field_or_the_rule(stack: Stack) -> None:
    for kind, spec, said in BAD:
        with pytest.raises(CommandFailed) as refused:
            stack.kubectl("apply", "-n", stack.sandboxes, "-f", "-", stdin=manifest(kind, "bad", spec))
        assert said in refused.value.output, (kind, spec, refused.value.output)
    template = {"template": TEMPLATE, "podName": "i-0000000000000000", "sandboxId": "x"}
    with applied(stack, "Sandbox", "record", template):
        for change, said in (
            ({"podName": "i-1"}, "podName cannot change once it is set"),
            ({"template": {**TEMPLATE, "cpu": 2}}, "template cannot change once podName is set"),
        ):
            patch = ("patch", "sandbox", "record", "--type=merge", "-p", json.dumps({"spec": change}))
            with pytest.raises(CommandFailed) as refused:
                stack.kubectl(*patch, "-n", stack.sandboxes)
            assert said in refused.value.output
