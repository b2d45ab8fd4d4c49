"""A standby that could not lead, since it has not its rights, says so; it stays ready, and notices when it has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from sandlot_kube.client import KubeClient

from tests.controller.cluster import Cluster
from tests.controller.pages import page, shows, started, told
from tests.kube.apiserver import ApiServer
from tests.waiting import until

pytestmark = pytest.mark.programs

RBAC = "/apis/rbac.authorization.k8s.io/v1"
IN_NAMESPACE = [
    {"apiGroups": ["", "sandlot.dev", "coordination.k8s.io"], "resources": ["*"], "verbs": ["*"]},
]
OF_NODES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]


class Account:
    """A service account with all rights in the namespace, and with none to nodes until `may_read_nodes`."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._name = f"account-{namespace}"
        self._subject = {"kind": "ServiceAccount", "name": self._name, "namespace": namespace}
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        server.call("POST", accounts, {"metadata": {"name": self._name}})
        self.token: str = server.call("POST", f"{accounts}/{self._name}/token", {"spec": {}})["status"][
            "token"
        ]
        self._allow(f"{RBAC}/namespaces/{namespace}/", "Role", IN_NAMESPACE)

    def may_read_nodes(self) -> None:
        self._allow(f"{RBAC}/cluster", "ClusterRole", OF_NODES)

    def remove(self) -> None:
        for resource in ("clusterrolebindings", "clusterroles"):
            self._server.call("DELETE", f"{RBAC}/{resource}?fieldSelector=metadata.name%3D{self._name}", {})

    def _allow(self, path: str, kind: str, rules: list[dict[str, list[str]]]) -> None:
        named = {"metadata": {"name": self._name}}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": self._name}
        self._server.call("POST", f"{path}roles", {**named, "rules": rules})
        self._server.call(
            "POST", f"{path}rolebindings", {**named, "roleRef": ref, "subjects": [self._subject]}
        )


@pytest.fixture
def account(resources: ApiServer, cluster: Cluster) -> Iterator[Account]:
    account = Account(resources, cluster.namespace)
    try:
        yield account
    finally:
        account.remove()


@pytest.fixture
async def limited(resources: ApiServer, cluster: Cluster, account: Account) -> AsyncIterator[KubeClient]:
    client = KubeClient(resources.access(namespace=cluster.namespace, token=account.token))
    try:
        yield client
    finally:
        await client.close()


async def test_one_without_its_rights_says_so_and_stays_ready(
    cluster: Cluster, account: Account, limited: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.controlled():
        cluster.seen_through = limited
        async with started(cluster.controller()) as standby:
            await until(lambda: shows(standby, "nodes", True), pause=0.2)
            answer = await page(standby, "readyz")
            assert answer.status_code == 200  # else the budget would keep the leader on its node
            assert answer.text.startswith("cannot read /api/v1/nodes: nodes is forbidden")
            assert "ClusterRole" in answer.text
            (warning,) = told(caplog, "could not lead")
            assert "/api/v1/nodes" in warning
            account.may_read_nodes()
            await until(lambda: shows(standby, "nodes", False), pause=0.2)
            assert (await page(standby, "readyz")).text == "ok\n"
            assert not standby.working.is_set()
