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
READ = ["get", "list", "watch"]
IN_NAMESPACE = ["", "sandlot.dev"]  # groups in which an account has all rights


class Account:
    """A service account with all rights to the namespace's pods and resources of ours, and to what a test allows."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._name = f"account-{namespace}"
        self._subject = {"kind": "ServiceAccount", "name": self._name, "namespace": namespace}
        self._roles = f"{RBAC}/namespaces/{namespace}/"
        self._cluster_roles: list[str] = []
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        server.call("POST", accounts, {"metadata": {"name": self._name}})
        self.token: str = server.call("POST", f"{accounts}/{self._name}/token", {"spec": {}})["status"][
            "token"
        ]
        self._allow(
            self._roles, "Role", "all", {"apiGroups": IN_NAMESPACE, "resources": ["*"], "verbs": ["*"]}
        )

    def may_nodes(self, *verbs: str) -> None:
        name = "-".join(verbs)
        rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": [*verbs]}
        self._cluster_roles.append(self._allow(f"{RBAC}/cluster", "ClusterRole", name, rule))

    def may_leases(self, *verbs: str) -> None:
        rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": [*verbs]}
        self._allow(self._roles, "Role", "-".join(verbs), rule)

    def remove(self) -> None:
        for name in self._cluster_roles:
            for resource in ("clusterrolebindings", "clusterroles"):
                self._server.call("DELETE", f"{RBAC}/{resource}/{name}", {})

    def _allow(self, path: str, kind: str, name: str, rule: dict[str, list[str]]) -> str:
        name = f"{self._name}-{name}"
        named = {"metadata": {"name": name}}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        self._server.call("POST", f"{path}roles", {**named, "rules": [rule]})
        self._server.call(
            "POST", f"{path}rolebindings", {**named, "roleRef": ref, "subjects": [self._subject]}
        )
        return name


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


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_one_without_its_rights_says_so_and_stays_ready(
    cluster: Cluster, account: Account, limited: KubeClient, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    """`verb`: the right to nodes that it lacks."""
    account.may_leases("get", "update")
    account.may_nodes(*(one for one in READ if one != verb))
    async with cluster.controlled():
        cluster.seen_through = limited
        async with started(cluster.controller()) as standby:
            await until(lambda: shows(standby, "nodes", True), pause=0.2)
            answer = await page(standby, "readyz")
            assert answer.status_code == 200  # else the budget would keep the leader on its node
            assert answer.text.startswith("cannot read /api/v1/nodes: nodes is forbidden")
            assert f'cannot {verb} resource "nodes"' in answer.text
            assert "ClusterRole" in answer.text
            (warning,) = told(caplog, "could not lead")
            assert "/api/v1/nodes" in warning
            account.may_nodes(verb)
            await until(lambda: shows(standby, "nodes", False), pause=0.2)
            assert (await page(standby, "readyz")).text == "ok\n"
            assert not standby.working.is_set()


@pytest.mark.parametrize("verb", ["get", "update"])
async def test_one_that_could_not_hold_the_lease_says_so(
    cluster: Cluster, account: Account, limited: KubeClient, verb: str
) -> None:
    account.may_nodes(*READ)
    account.may_leases("update" if verb == "get" else "get")
    async with cluster.controlled() as leader:
        cluster.seen_through = limited
        async with started(cluster.controller()) as standby:
            await until(lambda: shows(standby, "leases", True), pause=0.2)
            answer = await page(standby, "readyz")
            assert answer.status_code == 200
            assert f'cannot {verb} resource "leases"' in answer.text
            account.may_leases(verb)
            await until(lambda: shows(standby, "leases", False), pause=0.2)
            assert (await page(standby, "readyz")).text == "ok\n"
            assert leader.working.is_set()  # what the standby has tried changed nothing
            assert not standby.working.is_set()
