"""The certificates of encrypted calls: made by the chart or named, and mounted where user code never is."""

from __future__ import annotations

import base64
import json
import os
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sandlot_contract.sidecar import GATEWAY_NAME, SIDECAR_NAME
from sandlot_contract.tls_files import TlsFiles
from sandlot_controller import settings as controller
from sandlot_controller.plan import pod as pods
from sandlot_kube.objects import SandboxPool

from tests.chart.release import Release
from tests.chart.render import (
    CONTROLLER,
    GATEWAY,
    NAMESPACE,
    SANDBOXES,
    Resource,
    environment,
    of_kind,
    one,
    render,
)

NAME = "sandlot-sidecar-tls"
POOL = {"pools": {"default": {"size": 1, "template": {"image": "python:3.12"}}}}


def pod_of(resources: list[Resource], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The pod that the controller makes for the pool `default`."""
    for name in [name for name in os.environ if name.startswith("SANDLOT_")]:
        monkeypatch.delenv(name)
    for name, value in environment(one(resources, "Deployment", CONTROLLER)).items():
        monkeypatch.setenv(name, value)
    pool = msgspec.convert(one(resources, "SandboxPool", "default"), SandboxPool)
    return pods.pool_pod(pool, instance_id="i-1", token="sit_x", settings=controller.load())


def files(secret: Resource, directory: Path) -> TlsFiles:
    directory.mkdir()
    for name, value in secret["data"].items():
        (directory / name).write_bytes(base64.b64decode(value))
    return TlsFiles(str(directory), failing=lambda reason: None)


def greet(client: ssl.SSLContext, server: ssl.SSLContext, *, name: str) -> tuple[str, ...]:
    """Shake hands in memory; return the client's DNS names, as the server sees them."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one_side = client.wrap_bio(back, there, server_hostname=name)
    other = server.wrap_bio(there, back, server_side=True)
    for side in (one_side, other, one_side, other):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = other.getpeercert()
    assert found
    return tuple(str(host) for _, host in found["subjectAltName"])


def test_it_is_off_by_default(defaults: list[Resource], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "sidecar-tls" not in json.dumps(defaults)
    assert "tls" not in json.dumps(pod_of(render(POOL), monkeypatch))


def test_the_chart_s_certificates_let_each_side_verify_the_other(tmp_path: Path) -> None:
    made = [
        one
        for one in of_kind(render({"sidecarTls": {"enabled": True}}), "Secret")
        if one["metadata"]["name"] == NAME
    ]
    by_namespace = {one["metadata"]["namespace"]: one for one in made}
    assert by_namespace.keys() == {NAMESPACE, SANDBOXES}
    for secret in made:  # pods that mount it go on after an `existingSecret` or an uninstall
        assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    gateway, sidecar = (files(by_namespace[one], tmp_path / one) for one in (NAMESPACE, SANDBOXES))
    assert greet(gateway.client(), sidecar.server(), name=SIDECAR_NAME) == (GATEWAY_NAME,)
    assert greet(sidecar.client(), gateway.server(), name=GATEWAY_NAME) == (SIDECAR_NAME,)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        greet(sidecar.client(), sidecar.server(), name=GATEWAY_NAME)


@pytest.mark.parametrize("release", [{"sidecarTls": {"enabled": True}}], ids=["tls"], indirect=True)
def test_an_upgrade_keeps_them(release: Release) -> None:
    def found() -> list[dict[str, str]]:
        name = f"{release.fullname}-sidecar-tls"
        paths = [f"/api/v1/namespaces/{one}/secrets/{name}" for one in (release.namespace, release.sandboxes)]
        return [release.server.call("GET", path)["data"] for path in paths]

    before = found()
    release.run("upgrade")
    assert found() == before


def test_only_the_sidecar_s_container_mounts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_of(render(POOL | {"sidecarTls": {"enabled": True}}), monkeypatch)
    sandbox, sidecar = pod["spec"]["containers"]
    (volume,) = [one for one in pod["spec"]["volumes"] if "secret" in one]
    assert volume["secret"] == {"secretName": NAME, "defaultMode": 0o400}
    (mount,) = [one for one in sidecar["volumeMounts"] if one["name"] == volume["name"]]
    assert mount["readOnly"] is True
    assert "subPath" not in mount, "such a file would never be renewed"
    others = [sandbox, *pod["spec"].get("initContainers", [])]
    assert volume["name"] not in {one["name"] for each in others for one in each.get("volumeMounts", [])}
    config = json.loads(
        next(one["value"] for one in sidecar["env"] if one["name"] == "SANDLOT_SIDECAR_CONFIG")
    )
    assert config["tls"] == mount["mountPath"]
    assert config["webhook"].startswith("https://")
    assert pod["metadata"]["annotations"]["sandlot.dev/sidecar-tls"] == "true"


@pytest.mark.parametrize("name", [GATEWAY, CONTROLLER])
def test_gateways_and_controllers_mount_a_named_secret(name: str) -> None:
    resources = render({"sidecarTls": {"enabled": True, "existingSecret": "mine"}})
    assert NAME not in [one["metadata"]["name"] for one in of_kind(resources, "Secret")]
    deployment = one(resources, "Deployment", name)
    pod = deployment["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if one.get("secret", {}).get("secretName") == "mine"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert (mount["mountPath"], mount["readOnly"]) == (
        environment(deployment)["SANDLOT_SIDECAR_TLS_DIR"],
        True,
    )


def test_gateways_can_be_prepared_before_sidecars_speak_it(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = render(POOL | {"sidecarTls": {"enabled": True, "sidecars": False}})
    assert "SANDLOT_SIDECAR_TLS_DIR" in environment(one(resources, "Deployment", GATEWAY))
    assert "tls" not in json.dumps(pod_of(resources, monkeypatch))
