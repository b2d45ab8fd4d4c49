"""The master key's files change while the controller works: new pods get the new key, and pods of the old one are asked with theirs."""

from __future__ import annotations

import pytest
from sandlot_contract.keyring import Keyring, key_id
from sandlot_contract.names import LABEL_KEY

from tests import plain_http
from tests.controller.cluster import Cluster
from tests.waiting import until

pytestmark = pytest.mark.programs

OLD, NEW = b"k" * 32, b"n" * 32


async def reload_failing(port: int | None) -> float:
    async with plain_http.async_client(base_url=f"http://127.0.0.1:{port}") as client:
        text = (await client.get("/metrics")).text
    (line,) = (line for line in text.splitlines() if line.startswith("sandlot_controller_reload_failing{"))
    return float(line.split()[-1])


def keys(cluster: Cluster) -> set[str]:
    """Of the pods that are warm."""
    return {cluster.pods[name].metadata.labels[LABEL_KEY] for name in cluster.warm()}


async def test_warm_pods_move_to_a_new_key_and_claimed_ones_keep_theirs(cluster: Cluster) -> None:
    async with cluster.controlled(surplus_grace=0.0) as controller:
        await cluster.pool(size=2)
        await cluster.until(lambda: len(cluster.warm()) == 2, "two are warm")
        assert keys(cluster) == {key_id(OLD)}
        old = set(cluster.pods)
        claimed = cluster.warm()[0]
        await cluster.claim(claimed, generation=1)
        await cluster.until(lambda: len(cluster.warm()) == 2, "it was replaced")

        other = cluster.key_file.with_name("master-new")
        other.write_bytes(b"short")

        async def is_told() -> bool:
            return await reload_failing(controller.port) == 1

        await until(is_told)
        assert keys(cluster) == {key_id(OLD)}

        other.write_bytes(OLD)
        cluster.key_file.write_bytes(NEW)
        cluster.sidecars.use(Keyring(NEW, OLD))
        await cluster.until(
            lambda: keys(cluster) == {key_id(NEW)}, "all warm ones are of the new key", timeout=90
        )
        await cluster.until(lambda: len(cluster.pods) == 3, "the old ones are gone")
        assert claimed in cluster.pods
        assert old - {claimed} <= set(cluster.sidecars.asked)
        assert await reload_failing(controller.port) == 0
