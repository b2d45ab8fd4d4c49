"""A cold start is found by each of three sources alone: its sidecar's webhook, the watch of pods, its name in DNS.

The webhook is switched off by a NetworkPolicy that lets sidecars reach nobody, the watch by a role without pods.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from sandlot import Client, Sandbox

from tests.cluster.shell import CommandFailed
from tests.kubernetes.boxes import POOLED, until
from tests.kubernetes.releases import SMALL, release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack

POLICY = "gateway-and-controller"
GATEWAY = "app.kubernetes.io/name=sandlot,app.kubernetes.io/component=gateway"


class Sources:
    """Of the one gateway of a release; at first all of them are on."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._egress = stack.get("networkpolicy", POLICY, "-n", stack.sandboxes)["spec"]["egress"]
        (role,) = stack.get("roles", "-n", stack.sandboxes, "-l", GATEWAY)["items"]
        self._name, self._rules = role["metadata"]["name"], role["rules"]
        self._watching = True

    def switch(self, *, webhook: bool, watch: bool) -> None:
        self._patch("networkpolicy", POLICY, {"spec": {"egress": self._egress if webhook else []}})
        if watch != self._watching:
            rules = [rule for rule in self._rules if watch or "pods" not in rule["resources"]]
            self._patch("role", self._name, {"rules": rules})
            self._watching = watch
            # A watch that is there outlives the right to it.
            deployment = (f"deployment/{self._name}", "-n", self.stack.namespace)
            self.stack.kubectl("rollout", "restart", *deployment)
            self.stack.kubectl("rollout", "status", *deployment, "--timeout=240s")
            # The one that leaves answers for a while, with what it has heard.
            until(
                lambda: len(self.stack.get("pods", "-n", self.stack.namespace, "-l", GATEWAY)["items"]) == 1
            )
        assert self._may_watch() == watch

    def webhooks(self) -> float:
        """How many words of sidecars the gateway has heard."""
        headers = {"Authorization": f"Bearer {self.stack.api_key}"}
        request = urllib.request.Request(f"{self.stack.url}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("sandlot_webhooks_total"))

    def _may_watch(self) -> bool:
        account = f"system:serviceaccount:{self.stack.namespace}:{self._name}"
        try:
            self.stack.kubectl("auth", "can-i", "watch", "pods", "-n", self.stack.sandboxes, "--as", account)
        except CommandFailed:
            return False
        return True

    def _patch(self, kind: str, name: str, change: dict[str, Any]) -> None:
        words = ("patch", kind, name, "-n", self.stack.sandboxes, "--type=merge", "-p", json.dumps(change))
        self.stack.kubectl(*words)


@pytest.fixture(scope="module")
def sources() -> Iterator[Sources]:
    with release_of_its_own("ready", runtime="runc") as stack:
        stack.install(*SMALL, "--set", "sandboxes.dnsNames=true")
        yield Sources(stack)


@pytest.mark.parametrize(
    ("webhook", "watch"), [(True, False), (False, False), (False, True)], ids=["webhook", "dns", "watch"]
)
def test_one_source_is_enough(sources: Sources, *, webhook: bool, watch: bool) -> None:
    sources.switch(webhook=webhook, watch=watch)
    stack = sources.stack
    before = sources.webhooks()
    with (
        Client(url=stack.url, api_key=stack.api_key) as client,
        Sandbox.create(IMAGE, client=client, **POOLED, wait=240) as box,
    ):
        assert not box.info.pool_hit
        box.files.write("/tmp/sent", b"7" * 100_000)
        assert box.exec("wc -c < /tmp/sent; hostname", timeout=60).stdout.split() == ["100000", "sandbox"]
        if webhook:
            # The sidecar tells it again and again: a first connection may fall into the moment before the node's
            # network policies know the pod, and its name in DNS is faster then.
            until(lambda: sources.webhooks() > before)
        else:
            assert sources.webhooks() == before
    service = stack.get("service", "sandboxes", "-n", stack.sandboxes)["spec"]
    assert service["publishNotReadyAddresses"] is True
