"""What the chart lets gateway and controller do, by the word of a real API server."""

from __future__ import annotations

import pytest

from tests.chart.release import Release

pytestmark = pytest.mark.programs


_IN_SANDBOXES = [
    (
        "",
        "pods",
        {"gateway": "get list watch", "controller": "get list watch create delete deletecollection"},
    ),
    ("", "pods/exec", {}),
    ("", "pods/log", {}),
    ("", "secrets", {}),
    ("", "configmaps", {"gateway": "get list create update delete"}),
    ("", "serviceaccounts/token", {}),
    ("rbac.authorization.k8s.io", "rolebindings", {}),
    ("networking.k8s.io", "networkpolicies", {}),
    (
        "sandlot.dev",
        "imagewarmups",
        {"gateway": "get list create delete", "controller": "get list watch delete"},
    ),
    ("sandlot.dev", "imagewarmups/status", {"controller": "patch"}),
    (
        "sandlot.dev",
        "sandboxes",
        {
            "gateway": "get list watch create patch delete",
            "controller": "get list watch delete deletecollection",
        },
    ),
    (
        "sandlot.dev",
        "sandboxpools",
        {"gateway": "get list watch create patch delete", "controller": "get list watch"},
    ),
    ("sandlot.dev", "sandboxes/status", {"gateway": "patch", "controller": "patch"}),
    ("sandlot.dev", "sandboxpools/status", {"controller": "patch"}),
]
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def test_who_may_do_what_by_the_api_server_s_own_word(release: Release) -> None:
    for group, resource, allowed in _IN_SANDBOXES:
        for component in ("gateway", "controller"):
            may = [v for v in _VERBS if _may(release, component, v, group, resource, release.sandboxes)]
            assert " ".join(sorted(may)) == " ".join(sorted(allowed.get(component, "").split())), (
                component,
                resource,
            )
    for component in ("gateway", "controller"):
        for where in (release.namespace, "default", "kube-system"):
            for verb in _VERBS:
                for group, resource in (("", "pods"), ("", "secrets"), ("sandlot.dev", "sandboxes")):
                    assert not _may(release, component, verb, group, resource, where)
    for verb in _VERBS:
        reads = verb in ("get", "list", "watch")
        assert _may(release, "controller", verb, "", "nodes", None) == reads
        assert not _may(release, "gateway", verb, "", "nodes", None)


@pytest.mark.parametrize("release", [{"gateway": {"secretRefs": {"enabled": True}}}], indirect=True)
def test_secrets_by_reference_are_read_one_by_one_in_one_namespace(release: Release) -> None:
    for component in ("gateway", "controller"):
        for where in (release.sandboxes, release.namespace, "default"):
            may = [verb for verb in _VERBS if _may(release, component, verb, "", "secrets", where)]
            assert may == (["get"] if (component, where) == ("gateway", release.sandboxes) else [])


def test_the_lease_and_no_other(release: Release) -> None:
    group, mine = "coordination.k8s.io", f"{release.fullname}-controller"
    for verb in ("get", "update"):
        assert _may(release, "controller", verb, group, "leases", release.namespace, name=mine)
        assert not _may(release, "controller", verb, group, "leases", release.namespace, name="another")
        assert not _may(release, "gateway", verb, group, "leases", release.namespace, name=mine)
    # The chart makes it; a create could not be bound to its name.
    assert not _may(release, "controller", "create", group, "leases", release.namespace)


def _may(
    release: Release,
    component: str,
    verb: str,
    group: str,
    resource: str,
    namespace: str | None,
    *,
    name: str = "",
) -> bool:
    plural, _, sub = resource.partition("/")
    account = f"{release.fullname}-{component}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{release.namespace}:{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "group": group,
                "resource": plural,
                "subresource": sub,
                "verb": verb,
                "name": name,
                **({"namespace": namespace} if namespace else {}),
            },
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return release.server.call("POST", path, review)["status"]["allowed"]
