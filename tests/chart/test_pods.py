"""The pods of gateway and controller: at the Pod Security level `restricted`, with settings that exist."""

from __future__ import annotations

import os
from typing import Any

import pytest
from sandlot_controller import settings as controller
from sandlot_gateway import settings as gateway
from sandlot_gateway.core.costs import Prices
from sandlot_gateway.prices import PriceList
from sandlot_gateway.quotas import Limits, Quotas

from tests.chart.render import GATEWAY, NAMESPACE, SANDBOXES, Resource, environment, of_kind, one, render

COMPONENTS = ("gateway", "controller")


@pytest.fixture(params=COMPONENTS)
def deployment(request: pytest.FixtureRequest, resources: list[Resource]) -> Resource:
    return one(resources, "Deployment", f"sandlot-{request.param}")


def test_nothing_that_restricted_forbids(deployment: Resource) -> None:
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    kinds = {next(iter(volume.keys() - {"name"})) for volume in pod["volumes"]}
    assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_every_volume_is_mounted_and_every_mount_has_one(deployment: Resource) -> None:
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in container["volumeMounts"]}


def test_no_variables_of_services(deployment: Resource) -> None:
    """A Service called `sandlot` would set SANDLOT_PORT to an URL, which is a setting of the gateway."""
    assert deployment["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_no_secret_is_in_the_environment(deployment: Resource) -> None:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert all(each.keys() == {"name", "value"} for each in container["env"])
    assert "envFrom" not in container


def test_probes_ask_a_port_that_there_is(deployment: Resource) -> None:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for probe, path in paths.items():
        asked = container[probe]["httpGet"]
        assert asked["path"] == path
        assert asked["port"] in {port["name"] for port in container["ports"]}
        assert (asked["port"] == "https") == (asked.get("scheme") == "HTTPS")


def test_an_account_of_its_own(deployment: Resource, resources: list[Resource]) -> None:
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    assert account == deployment["metadata"]["name"]
    assert one(resources, "ServiceAccount", account)


def test_the_secrets_are_where_the_settings_say(deployment: Resource, resources: list[Resource]) -> None:
    pod, variables = deployment["spec"]["template"]["spec"], environment(deployment)
    (container,) = pod["containers"]
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    named = ("SANDLOT_KEY_FILE", "SANDLOT_API_KEYS_FILE", "SANDLOT_NODE_AGENT_TOKEN_FILE")
    files = [variables[name] for name in named if name in variables]
    assert len(files) == len(
        secrets.keys() - {"tls", "registry-credentials", "sidecar-tls", "event-webhooks", "s3"}
    )
    for file in files:
        directory, _, key = file.rpartition("/")
        assert mounts[directory]["readOnly"] is True
        secret = one(resources, "Secret", secrets[mounts[directory]["name"]], namespace=NAMESPACE)
        assert key in secret["data"]


def test_the_gateway_reads_the_webhooks_of_a_secret_of_the_users_own(everything: list[Resource]) -> None:
    deployment = one(everything, "Deployment", GATEWAY)
    pod = deployment["spec"]["template"]["spec"]
    directory, _, file = environment(deployment)["SANDLOT_EVENT_WEBHOOKS_FILE"].rpartition("/")
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == directory]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert (file, volume["secret"]["secretName"]) == ("webhooks.json", "event-webhooks")
    assert mount["readOnly"] is True


def test_the_gateway_reads_the_prices_that_the_values_say(everything: list[Resource]) -> None:
    deployment = one(everything, "Deployment", GATEWAY)
    pod = deployment["spec"]["template"]["spec"]
    directory, _, file = environment(deployment)["SANDLOT_PRICES_FILE"].rpartition("/")
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == directory]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    prices = PriceList()
    prices.replace(one(everything, "ConfigMap", volume["configMap"]["name"])["data"][file])
    gpus = {"*": 1_500_000_000, "H100": 2_900_000_000}
    assert prices.now == Prices("EUR", 35_000_000, 0, 0, gpus)


def test_the_gateway_reads_the_quotas_that_the_values_say(everything: list[Resource]) -> None:
    deployment = one(everything, "Deployment", GATEWAY)
    pod = deployment["spec"]["template"]["spec"]
    directory, _, file = environment(deployment)["SANDLOT_QUOTAS_FILE"].rpartition("/")
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == directory]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    quotas = Quotas()
    quotas.replace(one(everything, "ConfigMap", volume["configMap"]["name"])["data"][file])
    assert quotas.of_tenant("training") == Limits(memory_gb=0.5, creates_per_second=2.5, creates_burst=9)
    assert quotas.of_tenant("another") == Limits(creates_per_second=2.5, gpus=1)


def test_the_controller_does_not_see_api_keys(resources: list[Resource]) -> None:
    pod = one(resources, "Deployment", "sandlot-controller")["spec"]["template"]["spec"]
    secrets = {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    assert secrets - {"sandlot-node-agent", "sandlot-sidecar-tls", "registries"} == {"sandlot-master"}


def _load(deployment: Resource, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program's own settings, from nothing but the environment that the chart gives it."""
    for name in list(os.environ):
        if name.startswith("SANDLOT_"):
            monkeypatch.delenv(name)
    for name, value in environment(deployment).items():
        monkeypatch.setenv(name, value)
    if deployment["metadata"]["name"].endswith("controller"):
        return controller.load()
    return gateway.Settings(backend="kubernetes")  # pyright: ignore[reportCallIssue]


def test_every_variable_is_a_setting_and_every_value_is_taken(
    deployment: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _load(deployment, monkeypatch)
    names = {f"SANDLOT_{name.upper()}" for name in type(settings).model_fields}
    assert environment(deployment).keys() - {"AWS_SHARED_CREDENTIALS_FILE"} <= names
    assert settings.namespace == SANDBOXES


def test_what_the_controller_makes_of_all_options(
    everything: list[Resource], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _load(one(everything, "Deployment", "sandlot-controller"), monkeypatch)
    assert settings.node_selector == {"pool": "sandboxes"}
    assert settings.tolerations[0].effect == "NoSchedule"
    assert settings.image_pull_secrets == ["images"]
    assert settings.guaranteed is True
    assert settings.sidecar_memory_limit == 256 << 20
    assert settings.webhook_url == (
        "http://sandlot-gateway-webhooks.sandlot-system.svc.cluster.local.:8641/internal/sidecar"
    )


def test_how_nodes_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for values, placement in (({}, "pack"), ({"controller": {"config": {"placement": "spread"}}}, "spread")):
        settings = _load(one(render(values), "Deployment", "sandlot-controller"), monkeypatch)
        assert settings.placement == placement


def test_a_scheduler_of_the_users_own() -> None:
    resources = render({"sandboxes": {"pods": {"schedulerName": "packing"}}})
    variables = environment(one(resources, "Deployment", "sandlot-controller"))
    assert variables["SANDLOT_SCHEDULER_NAME"] == "packing"


def test_both_take_the_same_key(resources: list[Resource]) -> None:
    paths = set()
    for component in COMPONENTS:
        deployment = one(resources, "Deployment", f"sandlot-{component}")
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        (name,) = {each["secret"]["secretName"] for each in volumes if each["name"] == "master"}
        paths.add((environment(deployment)["SANDLOT_KEY_FILE"], name))
    assert paths == {("/etc/sandlot/master/master", "sandlot-master")}


def test_secrets_are_made_of_random_bytes_and_kept(defaults: list[Resource]) -> None:
    again = render()
    for name, key in (("sandlot-master", "master"), ("sandlot-api-key", "api-key")):
        secret = one(defaults, "Secret", name)
        assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert list(secret["data"]) == [key]
        assert secret["data"] != one(again, "Secret", name)["data"]


def test_secrets_of_the_users_own() -> None:
    resources = render({"auth": {"existingMasterSecret": "mine", "existingApiKeySecret": "keys"}})
    assert of_kind(resources, "Secret") == []
    volumes = one(resources, "Deployment", "sandlot-gateway")["spec"]["template"]["spec"]["volumes"]
    assert {each["secret"]["secretName"] for each in volumes if "secret" in each} == {"mine", "keys"}


def test_checkpoints_in_a_bucket_have_their_credentials_in_a_file(
    everything: list[Resource], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = one(everything, "Deployment", GATEWAY)
    settings = _load(deployment, monkeypatch)
    assert (settings.checkpoint_s3, settings.checkpoint_s3_endpoint, settings.checkpoint_s3_region) == (
        "s3://box/kept",
        "https://s3.example.com",
        "eu-central-1",
    )
    pod = deployment["spec"]["template"]["spec"]
    directory, _, file = environment(deployment)["AWS_SHARED_CREDENTIALS_FILE"].rpartition("/")
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == directory]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert (file, volume["secret"]["secretName"], mount["readOnly"]) == ("credentials", "bucket", True)
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} & environment(deployment).keys()


def test_checkpoints_have_a_place_only_where_a_claim_is_named(
    defaults: list[Resource], everything: list[Resource], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = one(everything, "Deployment", "sandlot-gateway")
    directory = str(_load(gateway, monkeypatch).checkpoints())
    pod = gateway["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volume = next(each for each in pod["volumes"] if each["name"] == mounts[directory])
    assert volume["persistentVolumeClaim"] == {"claimName": "kept"}
    without = one(defaults, "Deployment", "sandlot-gateway")
    assert directory not in str(without)


def test_the_installer_is_privileged_only_while_it_installs(everything: list[Resource]) -> None:
    daemons = one(everything, "DaemonSet", "gvisor-installer")
    assert daemons["metadata"]["namespace"] == SANDBOXES
    pod = daemons["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    (install,), (wait,) = pod["initContainers"], pod["containers"]
    assert install["securityContext"]["privileged"] is True
    assert "volumeMounts" not in wait
    assert wait["securityContext"]["runAsNonRoot"] is True
    assert wait["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_console_can_be_off(defaults: list[Resource]) -> None:
    assert environment(one(defaults, "Deployment", "sandlot-gateway"))["SANDLOT_CONSOLE"] == "true"
    off = render({"gateway": {"config": {"console": False}}})
    assert environment(one(off, "Deployment", "sandlot-gateway"))["SANDLOT_CONSOLE"] == "false"


def test_the_audit_log_is_on_stdout_if_it_is_wanted(defaults: list[Resource]) -> None:
    named = {"SANDLOT_AUDIT_LOG", "SANDLOT_AUDIT_CHANGES_ONLY"}
    assert not named & environment(one(defaults, "Deployment", "sandlot-gateway")).keys()
    for changes_only in (False, True):
        values = {"gateway": {"audit": {"enabled": True, "changesOnly": changes_only}}}
        variables = environment(one(render(values), "Deployment", "sandlot-gateway"))
        assert variables["SANDLOT_AUDIT_LOG"] == "-"
        assert variables["SANDLOT_AUDIT_CHANGES_ONLY"] == str(changes_only).lower()


def test_traces_go_to_a_collector_if_one_is_given(defaults: list[Resource]) -> None:
    named = {
        "SANDLOT_TRACE_ENDPOINT", "SANDLOT_TRACE_RATIO", "SANDLOT_TRACE_LIMIT", "OTEL_EXPORTER_OTLP_HEADERS"
    }  # fmt: skip
    assert not named & environment(one(defaults, "Deployment", "sandlot-gateway")).keys()
    tracing = {"endpoint": "http://collector:4318", "ratio": 0.05, "limit": 7}
    plain = environment(one(render({"gateway": {"tracing": tracing}}), "Deployment", "sandlot-gateway"))
    assert plain["SANDLOT_TRACE_ENDPOINT"] == "http://collector:4318"
    assert (plain["SANDLOT_TRACE_RATIO"], plain["SANDLOT_TRACE_LIMIT"]) == ("0.05", "7")
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in plain
    values = {"gateway": {"tracing": {**tracing, "headersSecret": "collector"}}}
    (container,) = one(render(values), "Deployment", "sandlot-gateway")["spec"]["template"]["spec"][
        "containers"
    ]
    (headers,) = [entry for entry in container["env"] if entry["name"] == "OTEL_EXPORTER_OTLP_HEADERS"]
    assert headers["valueFrom"]["secretKeyRef"] == {"name": "collector", "key": "headers"}
