"""Who may do what: the rules to the letter, and no more than what the contract gives."""

from __future__ import annotations

from typing import Any

from tests.chart.render import GATEWAY, NAMESPACE, SANDBOXES, Resource, environment, of_kind, one, render

READ = ["get", "list", "watch"]
GATEWAY_RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": READ},
    {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "verbs": ["get", "list", "create", "update", "delete"],
    },
    {
        "apiGroups": ["sandlot.dev"],
        "resources": ["sandboxes", "sandboxpools"],
        "verbs": [*READ, "create", "patch", "delete"],
    },
    {
        "apiGroups": ["sandlot.dev"],
        "resources": ["imagewarmups"],
        "verbs": ["get", "list", "create", "delete"],
    },
    {"apiGroups": ["sandlot.dev"], "resources": ["sandboxes/status"], "verbs": ["patch"]},
]
CONTROLLER_RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*READ, "create", "delete", "deletecollection"]},
    {
        "apiGroups": ["sandlot.dev"],
        "resources": ["sandboxes"],
        "verbs": [*READ, "delete", "deletecollection"],
    },
    {"apiGroups": ["sandlot.dev"], "resources": ["sandboxpools"], "verbs": READ},
    {"apiGroups": ["sandlot.dev"], "resources": ["imagewarmups"], "verbs": [*READ, "delete"]},
    {
        "apiGroups": ["sandlot.dev"],
        "resources": ["sandboxes/status", "sandboxpools/status", "imagewarmups/status"],
        "verbs": ["patch"],
    },
]
LEASE_RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["sandlot-controller"],
        "verbs": ["get", "update"],
    },
    {
        "apiGroups": [""],
        "resources": ["services"],
        "resourceNames": ["sandlot-gateway-webhooks"],
        "verbs": ["get"],
    },
]
PEERS_RULES = [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]}]


SECRET_RULES = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
ROLES = {
    (SANDBOXES, "sandlot-gateway"): GATEWAY_RULES,
    (SANDBOXES, "sandlot-controller"): CONTROLLER_RULES,
    (NAMESPACE, "sandlot-controller-lease"): LEASE_RULES,
    (NAMESPACE, "sandlot-gateway-peers"): PEERS_RULES,
}


def roles(resources: list[Resource]) -> dict[tuple[str, str], Any]:
    return {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["rules"]
        for each in of_kind(resources, "Role")
    }


def test_the_roles_to_the_letter(defaults: list[Resource], everything: list[Resource]) -> None:
    assert roles(defaults) == ROLES
    assert roles(everything) == ROLES | {(SANDBOXES, "sandlot-gateway-secrets"): SECRET_RULES}


def test_secrets_of_creates_may_be_in_a_namespace_of_their_own(everything: list[Resource]) -> None:
    found = render({"gateway": {"secretRefs": {"enabled": True, "namespace": "vault"}}})
    assert roles(found) == ROLES | {("vault", "sandlot-gateway-secrets"): SECRET_RULES}
    for resources, namespace in ((found, "vault"), (everything, SANDBOXES)):
        gateway = environment(one(resources, "Deployment", GATEWAY))
        assert gateway["SANDLOT_SECRETS_NAMESPACE"] == namespace


def test_the_only_thing_known_of_the_cluster_is_its_nodes(resources: list[Resource]) -> None:
    (role,) = of_kind(resources, "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": READ}]


def test_each_role_is_bound_to_the_account_of_its_name(resources: list[Resource]) -> None:
    for binding in of_kind(resources, "RoleBinding") + of_kind(resources, "ClusterRoleBinding"):
        role = one(resources, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        assert role["metadata"].get("namespace") == binding["metadata"].get("namespace")
        (subject,) = binding["subjects"]
        assert subject["kind"] == "ServiceAccount"
        assert subject["namespace"] == NAMESPACE
        name = binding["metadata"]["name"]
        for suffix in ("-lease", "-secrets", "-peers"):
            name = name.removesuffix(suffix)
        assert subject["name"] == name
        assert one(resources, "ServiceAccount", subject["name"])


def test_sandboxes_have_no_account(resources: list[Resource]) -> None:
    assert all(each["metadata"]["namespace"] == NAMESPACE for each in of_kind(resources, "ServiceAccount"))
