"""Nodes that pull through a cache in the cluster, the second without the registry, all of them when it is gone."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.killing import own_cluster_only
from tests.kubernetes.node_agents import Agent, leave_no_image
from tests.kubernetes.registry_caches import configured, install, mirrored, upstream
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.test_node_agent import REACH
from tests.waiting import wait_until

SIZE = 4 << 20


def test_the_second_node_needs_the_cache_alone_and_none_needs_it(tmp_path: Path) -> None:
    own_cluster_only()
    with upstream(rate=8 << 20) as slow, release_of_its_own("cache", runtime="runc") as stack:
        first, second, *_ = nodes = install(stack, slow, tmp_path)
        image = slow.push(tmp_path, "cached", size=SIZE)

        def pulled(node: str, image: str) -> int:
            before = slow.relay.sent
            Agent(stack, node).prepare(image)
            return slow.relay.sent - before

        assert pulled(first, image) > SIZE
        assert pulled(second, image) < 4096, "no layer came from the registry again"

        gateway = (
            "exec",
            "-n",
            stack.namespace,
            f"deploy/{stack.release}-gateway",
            "--",
            "python3",
            "-c",
            REACH,
        )
        cache = f"{stack.release}-cache-test"
        address = stack.get("service", cache, "-n", stack.namespace)["spec"]["clusterIP"]
        assert stack.kubectl(*gateway, address, "5000").strip() != "reached", "only nodes and agents reach it"

        scale = ("scale", f"deploy/{cache}", "-n", stack.namespace, "--replicas=0", "--timeout=60s")
        stack.kubectl(*scale)
        assert pulled(second, slow.push(tmp_path, "after", size=SIZE)) > SIZE
        wait_until(lambda: not any(map(mirrored, nodes)), pause=0.3, what="nodes do not ask for it any more")
        stack.kubectl(*(word.replace("replicas=0", "replicas=1") for word in scale))
        wait_until(lambda: all(map(mirrored, nodes)), pause=0.3, what="nodes use it again")

        leave_no_image(stack)
        # Helm's alone: all parts go at once.
        stack.helm("uninstall", stack.release, "--namespace", stack.namespace, "--wait", "--timeout", "8m")
        wait_until(lambda: not any(map(configured, nodes)), pause=0.3, what="agents take their files away")
