"""What every resource of the chart has to be, with the defaults and with every option on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.render import (
    ALL,
    CHART,
    CONTROLLER,
    GATEWAY,
    NAMESPACE,
    SANDBOXES,
    VERSION,
    Resource,
    environment,
    of_kind,
    one,
    render,
    selected,
)

CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "RuntimeClass", "PriorityClass"}


def test_every_template_gives_something_when_all_is_on(everything: list[Resource]) -> None:
    templates = {path.relative_to(CHART).as_posix() for path in (CHART / "templates").rglob("*.yaml")}
    assert templates == {each["source"] for each in everything}


def test_no_two_resources_have_one_name(resources: list[Resource]) -> None:
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in resources
    ]
    assert len(names) == len(set(names))


def test_every_resource_has_its_namespace_and_labels(resources: list[Resource]) -> None:
    for each in resources:
        metadata = each["metadata"]
        expected = {None} if each["kind"] in CLUSTER_WIDE else {NAMESPACE, SANDBOXES}
        assert metadata.get("namespace") in expected, (each["kind"], metadata["name"])
        assert metadata["labels"]["app.kubernetes.io/name"] == "sandlot"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "sandlot"


def test_common_labels_are_on_everything(everything: list[Resource]) -> None:
    assert all(each["metadata"]["labels"]["team"] == "rl" for each in everything)


def test_selectors_meet_the_pods_of_their_own_component_only(resources: list[Resource]) -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in resources
        if each["kind"] in ("Deployment", "DaemonSet")
    }
    for each in of_kind(resources, "Deployment") + of_kind(resources, "DaemonSet"):
        assert selected(each["spec"]["selector"]["matchLabels"], pods) == {each["metadata"]["name"]}
    for each in of_kind(resources, "PodDisruptionBudget"):
        assert selected(each["spec"]["selector"]["matchLabels"], pods) == {each["metadata"]["name"]}
    for name in (GATEWAY, CONTROLLER):
        assert selected(one(resources, "Service", name)["spec"]["selector"], pods) == {name}
    for each in of_kind(resources, "Service"):
        if each["metadata"]["name"] == "sandboxes":
            assert selected(each["spec"]["selector"], pods) == set()


def test_the_sandboxes_have_a_namespace_that_admits_their_sidecars(resources: list[Resource]) -> None:
    (namespace,) = of_kind(resources, "Namespace")
    assert namespace["metadata"]["name"] == SANDBOXES
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    for name in (GATEWAY, CONTROLLER):
        deployment = one(resources, "Deployment", name)
        assert deployment["metadata"]["namespace"] == NAMESPACE
        assert environment(deployment)["SANDLOT_NAMESPACE"] == SANDBOXES


def test_a_namespace_of_the_users_own() -> None:
    resources = render({"sandboxes": {"namespace": "boxes", "createNamespace": False}})
    assert of_kind(resources, "Namespace") == []
    assert {each["metadata"].get("namespace") for each in resources} == {None, NAMESPACE, "boxes"}
    assert environment(one(resources, "Deployment", GATEWAY))["SANDLOT_NAMESPACE"] == "boxes"


def test_replicas_and_their_spread(defaults: list[Resource], everything: list[Resource]) -> None:
    for name in (GATEWAY, CONTROLLER):
        deployment = one(defaults, "Deployment", name)
        assert deployment["spec"]["replicas"] == 2
        assert one(defaults, "PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1
        anti = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
        (term,) = anti["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["labelSelector"] == deployment["spec"]["selector"]
    hard = one(everything, "Deployment", GATEWAY)["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert list(hard) == ["requiredDuringSchedulingIgnoredDuringExecution"]
    assert "affinity" not in one(everything, "Deployment", CONTROLLER)["spec"]["template"]["spec"]


def test_an_autoscaler_owns_the_number_of_gateways(everything: list[Resource]) -> None:
    (scaler,) = of_kind(everything, "HorizontalPodAutoscaler")
    gateway = one(everything, "Deployment", scaler["spec"]["scaleTargetRef"]["name"])
    assert "replicas" not in gateway["spec"]
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 8)
    # Its aim is a share of the request, so there must be one.
    assert gateway["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]


def test_gateways_that_are_slow_together_are_not_taken_out_together(defaults: list[Resource]) -> None:
    """6,400 callers on two cores: both failed three probes of 5 s, the Service had none, and 5,655 calls failed."""
    container = one(defaults, "Deployment", GATEWAY)["spec"]["template"]["spec"]["containers"][0]
    for name, least in (("readinessProbe", 60), ("livenessProbe", 120)):
        probe = container[name]
        assert probe["timeoutSeconds"] * probe["failureThreshold"] >= least, name


AFTER_DRAIN = 30.0  # seconds within which a gateway ends then, by docs/gateway-settings.md


def test_a_clean_end_has_the_time_it_was_promised(everything: list[Resource]) -> None:
    deployment = one(everything, "Deployment", GATEWAY)
    leave = float(environment(deployment)["SANDLOT_LEAVE"])
    assert leave > 5, "httpx keeps an unused connection for so long"
    assert (
        deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > leave + 60.5 + AFTER_DRAIN
    )


def test_images(defaults: list[Resource], everything: list[Resource]) -> None:
    for resources, prefix, tag in (
        (defaults, "sandlot", VERSION),
        (everything, "registry.example/sandlot", "v9"),
    ):
        for component in ("gateway", "controller"):
            (container,) = one(resources, "Deployment", f"sandlot-{component}")["spec"]["template"]["spec"][
                "containers"
            ]
            assert container["image"] == f"{prefix}/{component}:{tag}"
            assert container["imagePullPolicy"] == "IfNotPresent"
        sidecar = environment(one(resources, "Deployment", CONTROLLER))["SANDLOT_SIDECAR_IMAGE"]
        assert sidecar == f"{prefix}/sidecar:{tag}"
    pod = one(everything, "Deployment", GATEWAY)["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_a_missing_repository_is_the_program_s_name() -> None:
    resources = render({"image": {"gateway": None, "nodeAgent": None}, "nodeAgent": {"enabled": True}})
    assert gateway_image(resources) == f"sandlot/gateway:{VERSION}"
    (container,) = one(resources, "DaemonSet", "sandlot-node-agent")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"sandlot/node-agent:{VERSION}"


def test_a_digest_replaces_the_tag_until_a_tag_is_set() -> None:
    digests = {name: f"sha256:{number:064x}" for number, name in enumerate(("gateway", "sidecar", "python"))}
    resources = render({"image": {"digests": digests}})
    assert gateway_image(resources) == f"sandlot/gateway@{digests['gateway']}"
    controller = one(resources, "Deployment", CONTROLLER)
    assert environment(controller)["SANDLOT_SIDECAR_IMAGE"] == f"sandlot/sidecar@{digests['sidecar']}"
    pool = one(resources, "SandboxPool", "default")
    assert pool["spec"] == {"size": 2, "template": {"image": f"sandlot/python@{digests['python']}"}}
    assert gateway_image(render({"image": {"digests": digests, "tag": "mine"}})) == "sandlot/gateway:mine"


def gateway_image(resources: list[Resource]) -> str:
    (container,) = one(resources, "Deployment", GATEWAY)["spec"]["template"]["spec"]["containers"]
    return container["image"]


def test_gvisor_is_the_default_and_can_be_left_out(defaults: list[Resource]) -> None:
    (runtime,) = of_kind(defaults, "RuntimeClass")
    assert (runtime["metadata"]["name"], runtime["handler"]) == ("gvisor", "runsc")
    assert environment(one(defaults, "Deployment", CONTROLLER))["SANDLOT_RUNTIME_CLASS"] == "gvisor"
    only_used = render({"gvisor": {"createRuntimeClass": False, "runtimeClass": "walled"}})
    assert of_kind(only_used, "RuntimeClass") == []
    assert environment(one(only_used, "Deployment", CONTROLLER))["SANDLOT_RUNTIME_CLASS"] == "walled"
    without = render({"gvisor": {"enabled": False, "installer": {"enabled": True}}})
    assert of_kind(without, "RuntimeClass") == of_kind(without, "DaemonSet") == []
    assert "SANDLOT_RUNTIME_CLASS" not in environment(one(without, "Deployment", CONTROLLER))


def test_requests_may_name_the_charts_runtime_class_and_those_of_the_list() -> None:
    def allowed(values: dict[str, Any]) -> str | None:
        return environment(one(render(values), "Deployment", GATEWAY)).get("SANDLOT_RUNTIME_CLASSES")

    listed = {"gateway": {"runtimeClasses": ["kata", "gvisor"]}}
    assert allowed({}) == "gvisor"
    assert allowed(listed) == "gvisor,kata"
    assert allowed({"gvisor": {"enabled": False}}) is None
    assert allowed(listed | {"gvisor": {"enabled": False}}) == "kata,gvisor"


def test_sandboxes_evict_nobody(defaults: list[Resource]) -> None:
    low, high = (
        one(defaults, "PriorityClass", "sandlot-sandbox"),
        one(defaults, "PriorityClass", "sandlot-system"),
    )
    assert low["value"] < 0 < high["value"]
    assert low["preemptionPolicy"] == "Never"
    assert environment(one(defaults, "Deployment", CONTROLLER))["SANDLOT_PRIORITY_CLASS"] == "sandlot-sandbox"
    for name in (GATEWAY, CONTROLLER):
        spec = one(defaults, "Deployment", name)["spec"]["template"]["spec"]
        assert spec["priorityClassName"] == "sandlot-system"
    without = render({"priorityClasses": {"create": False}})
    assert of_kind(without, "PriorityClass") == []
    assert "SANDLOT_PRIORITY_CLASS" not in environment(one(without, "Deployment", CONTROLLER))
    assert "priorityClassName" not in one(without, "Deployment", GATEWAY)["spec"]["template"]["spec"]


def test_pools(defaults: list[Resource], everything: list[Resource]) -> None:
    default = one(defaults, "SandboxPool", "default")
    assert default["spec"] == {"size": 2, "template": {"image": f"sandlot/python:{VERSION}"}}
    assert of_kind(render({"defaultPool": {"enabled": False}}), "SandboxPool") == []
    assert len(of_kind(everything, "SandboxPool")) == len(ALL["pools"])
    for name, pool in ALL["pools"].items():
        made = one(everything, "SandboxPool", name)
        assert made["metadata"]["namespace"] == SANDBOXES
        assert made["spec"] == pool


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("prod", {}, "prod-sandlot-gateway"),
        ("sandlot-two", {}, "sandlot-two-gateway"),
        ("prod", {"nameOverride": "boxes"}, "prod-boxes-gateway"),
        ("prod", {"fullnameOverride": "x"}, "x-gateway"),
    ],
)
def test_names_follow_the_release(release: str, values: dict[str, str], name: str) -> None:
    resources = render(values, release=release)
    gateway = one(resources, "Deployment", name)
    assert one(resources, "Namespace", f"{release}-sandboxes")
    assert environment(gateway)["SANDLOT_NAMESPACE"] == f"{release}-sandboxes"
    controller = environment(one(resources, "Deployment", name.replace("gateway", "controller")))
    webhooks = f"{name}-webhooks"
    assert one(resources, "Service", webhooks)["spec"]["ports"][0]["port"] == 8641
    assert controller["SANDLOT_WEBHOOK_URL"] == (
        f"http://{webhooks}.{NAMESPACE}.svc.cluster.local.:8641/internal/sidecar"
    )
