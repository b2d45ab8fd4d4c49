"""How the API server is found: a pod's service account, a kubeconfig, and clear words when neither will do."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from sandlot_kube.access import Access, TokenFile, from_environment, from_kubeconfig, in_cluster
from sandlot_kube.errors import BadKubeConfig


def write(path: Path, *, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    config = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "boxes"}},
            {"name": "two", "context": {"cluster": "c", "user": "u"}},
            {"name": "lost", "context": {"cluster": "nowhere", "user": "u"}},
        ],
    }
    path.write_text(json.dumps(config))
    return path


def test_the_current_context(tmp_path: Path) -> None:
    access = from_kubeconfig([write(tmp_path / "config", user={"token": "t"})])
    assert (access.server, access.namespace, access.token, access.ssl) == (
        *("http://127.0.0.1:1", "boxes", "t"),
        None,
    )


def test_a_context_by_name_from_the_environments_files(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text("clusters: []\n")
    second = write(tmp_path / "second", user={"token": "t"})
    environ = {
        "KUBECONFIG": f"{tmp_path / 'missing'}:{first}:{second}",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    }
    access = from_environment("two", environ=environ)
    assert (access.server, access.namespace) == ("http://127.0.0.1:1", "default")


def test_a_token_file_beside_the_kubeconfig_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    token = from_kubeconfig([write(tmp_path / "config", user={"tokenFile": "token"})]).token
    assert isinstance(token, TokenFile)
    assert token.read() == "one"
    (tmp_path / "token").write_text("another\n")
    assert token.read() == "another"


@pytest.mark.parametrize(
    ("user", "cluster", "says"),
    [
        ({"exec": {"command": "aws"}}, {}, "exec is not supported"),
        ({"auth-provider": {"name": "gcp"}}, {}, "auth-provider is not supported"),
        ({"username": "u", "password": "p"}, {}, "username is not supported"),
        ({}, {"proxy-url": "http://p"}, "proxy-url is not supported"),
        ({}, {"server": ""}, "server '' is not an http:// or https:// URL"),
        ({}, {"server": "https://h", "certificate-authority": "none.crt"}, "none.crt"),
        ({}, {"server": "https://h", "certificate-authority-data": "%%%"}, "cannot be used"),
        (
            {},
            {"server": "https://h", "certificate-authority-data": base64.b64encode(b"no").decode()},
            "cannot be used",
        ),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, user: Any, cluster: Any, says: str) -> None:
    with pytest.raises(BadKubeConfig, match=says):
        from_kubeconfig([write(tmp_path / "config", user=user, **cluster)])


@pytest.mark.parametrize("context", ["three", "lost"])
def test_a_name_that_is_not_there_is_named(tmp_path: Path, context: str) -> None:
    with pytest.raises(BadKubeConfig, match="three" if context == "three" else "nowhere"):
        from_kubeconfig([write(tmp_path / "config")], context=context)


@pytest.mark.parametrize("text", ["", "a: [", "just text"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(BadKubeConfig, match="config"):
        from_kubeconfig([tmp_path / "config"])


def test_no_way_at_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadKubeConfig, match="not a pod"):
        from_environment(environ={"KUBECONFIG": str(tmp_path / "none")})


def test_a_service_account_without_its_files_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadKubeConfig, match=r"ca\.crt"):
        in_cluster(host="10.0.0.1", port="443", directory=tmp_path)


@pytest.mark.programs
def test_a_service_account(tmp_path: Path, apiserver) -> None:
    (tmp_path / "ca.crt").write_text(apiserver.ca.read_text())
    (tmp_path / "token").write_text(apiserver.token + "\n")
    (tmp_path / "namespace").write_text("boxes\n")
    access = in_cluster(host="::1", port="6443", directory=tmp_path)
    assert isinstance(access, Access)
    assert (access.server, access.namespace) == ("https://[::1]:6443", "boxes")
    assert isinstance(access.token, TokenFile)
    assert access.token.read() == apiserver.token
