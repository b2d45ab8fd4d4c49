"""Who may do what: the rules to the letter, and no more than what the contract gives."""

from __future__ import annotations

from tests.chart.render import NAMESPACE, SANDBOXES, Resource, of_kind, one

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


def test_the_roles_to_the_letter(resources: list[Resource]) -> None:
    roles = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["rules"]
        for each in of_kind(resources, "Role")
    }
    assert roles == {
        (SANDBOXES, "sandlot-gateway"): GATEWAY_RULES,
        (SANDBOXES, "sandlot-controller"): CONTROLLER_RULES,
        (NAMESPACE, "sandlot-controller-lease"): LEASE_RULES,
        (NAMESPACE, "sandlot-gateway-peers"): PEERS_RULES,
    }


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
        assert subject["name"] == binding["metadata"]["name"].removesuffix("-lease").removesuffix("-peers")
        assert one(resources, "ServiceAccount", subject["name"])


def test_sandboxes_have_no_account(resources: list[Resource]) -> None:
    assert all(each["metadata"]["namespace"] == NAMESPACE for each in of_kind(resources, "ServiceAccount"))
