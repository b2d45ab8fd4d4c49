"""What the guides show works: their YAML is taken by chart and API server, their commands run, in order."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.pages import Fence, all_yaml, commands, files
from tests.chart.programs import add_node
from tests.chart.release import Release
from tests.chart.render import ROOT, render
from tests.kube.apiserver import ApiServer, binary

YAML = all_yaml()
# What is built, pulled, or needs pods that run, is not run here. Namespaces have no controller that would end
# them, and the definitions are those of other tests too.
SHELL = r"""
set -euo pipefail
for name in docker skopeo make pip sandlot .venv/bin/python; do eval "function $name { :; }"; done
function helm {
    local words=()
    for word in "$@"; do
        case "$word" in
            --wait) ;;
            oci://registry.example/sandlot/charts/sandlot) words+=(charts/sandlot) ;;
            *) words+=("$word") ;;
        esac
    done
    command helm "${words[@]}"
}
function kubectl {
    case " $* " in
        *" port-forward "*) command kubectl "${@:1:2}" get "$4" ;;
        *" wait "*) command kubectl "${@:1:2}" get "$4" ;;
        # Twice within a second is refused.
        *" rollout restart "*) sleep 1; command kubectl "$@" ;;
        *" delete crd "*) command kubectl "$@" --dry-run=server ;;
        *" delete namespace "*) command kubectl "$@" --wait=false ;;
        *) command kubectl "$@" ;;
    esac
}
"""
NAMESPACES = ("sandlot", "sandlot-sandboxes", "research", "research-sandboxes")


@pytest.mark.parametrize("fence", [f for f in YAML if not f.is_resource], ids=lambda fence: fence.name)
def test_values_are_taken_by_the_chart(fence: Fence) -> None:
    assert render(fence.document, release="sandlot", namespace="sandlot")


@pytest.mark.programs
def test_resources_are_taken_by_the_api_server(release: Release) -> None:
    """Strictly: a field that it does not know is refused."""
    inside = {"sandlot": release.namespace, "sandlot-sandboxes": release.sandboxes}
    resources = [fence for fence in YAML if fence.is_resource]
    assert resources
    for fence in resources:
        resource, metadata = fence.document, fence.document["metadata"]
        where = {"namespace": inside[metadata["namespace"]]} if "namespace" in metadata else {}
        resource["metadata"] = metadata | where
        path = f"{release.path(resource)}/{metadata['name']}"
        query = "?dryRun=All&force=true&fieldManager=test&fieldValidation=Strict"
        try:
            release.server.call("PATCH", path + query, resource, content_type="application/apply-patch+yaml")
        except urllib.error.HTTPError as error:
            pytest.fail(f"{fence.name}: {error.read().decode()}")


@pytest.fixture
def shell(apiserver: ApiServer, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(apiserver, tmp_path)
    add_node(apiserver, "worker-1")
    try:
        yield made
    finally:
        apiserver.call("DELETE", "/api/v1/nodes/worker-1")
        made.clear()


class Shell:
    """A directory like the checkout's, with the pages' files, and an API server with nothing of Sandlot in it."""

    def __init__(self, server: ApiServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        (directory / "charts").symlink_to(ROOT / "charts")
        for name, text in files().items():
            (directory / name).write_text(text)
        helm = binary("helm")
        if helm is None or binary("kubectl") is None:
            pytest.skip("needs helm and kubectl of the test cluster (`make cluster` builds them)")
        homes = {f"HELM_{name}_HOME": str(directory / name) for name in ("CACHE", "CONFIG", "DATA")}
        kubeconfig = {"KUBECONFIG": str(server.kubeconfig(directory / "kubeconfig"))}
        path = {"PATH": f"{helm.parent}:{os.environ['PATH']}"}
        self.environment = os.environ | homes | kubeconfig | path

    def run(self, script: str) -> str:
        """What it prints."""
        done = subprocess.run(
            ["bash", "-x", "-c", SHELL + script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def clear(self) -> None:
        """What the namespace controller does, which no one runs here."""
        for namespace, release in (("sandlot", "sandlot"), ("research", "research")):
            self.run(f"helm uninstall {release} --namespace {namespace} --ignore-not-found")
        for name in NAMESPACES:
            secrets = f"/api/v1/namespaces/{name}/secrets"
            for secret in self.server.call("GET", secrets)["items"]:
                self.server.call("DELETE", f"{secrets}/{secret['metadata']['name']}")
            try:
                # A later installation would find its pools, and get no default one.
                self.server.call("DELETE", f"/apis/sandlot.dev/v1alpha1/namespaces/{name}/sandboxpools")
                self.server.call("DELETE", f"/api/v1/namespaces/{name}")
                namespace = self.server.call("GET", f"/api/v1/namespaces/{name}")
            except urllib.error.HTTPError as error:
                assert error.code in (404, 409)
                continue
            ended = namespace | {"spec": {"finalizers": []}}
            self.server.call("PUT", f"/api/v1/namespaces/{name}/finalize", ended)


def test_the_release_s_packages_are_installed_and_no_others() -> None:
    """pip prefers a newer version of a package index to the one of the directory."""
    for page in ("docs/install.md", "docs/release.md"):
        installs = re.findall(
            r"pip install --find-links dist/(\S+)/python 'sandlot\[cli\](.*)'", (ROOT / page).read_text()
        )
        assert [pin for _, pin in installs] == [f"=={version}" for version, _ in installs] != []


@pytest.mark.programs
def test_the_commands_from_install_to_uninstall(shell: Shell) -> None:
    install, uninstall, removal = commands("docs/install.md").partition("helm uninstall")
    between = [commands("docs/configure.md"), commands("docs/keys.md")]
    said = shell.run("\n".join([install, *between, uninstall + removal, 'echo "key: $SANDLOT_API_KEY"']))
    assert "STATUS: deployed" in said
    key = said.rpartition("key: ")[2].strip()
    assert len(key) == 40, "what the page exports is not the key that the chart made"
    left = shell.server.call("GET", "/api/v1/namespaces/sandlot/secrets")["items"]
    assert [
        each["metadata"]["name"] for each in left if each["metadata"]["name"].startswith("sandlot-")
    ] == []


@pytest.mark.programs
@pytest.mark.parametrize(
    ("page", "size"), [("docs/upgrade.md", 4), ("charts/sandlot/README.md", 4), ("README.md", 2)]
)
def test_the_commands_of_the_other_pages(page: str, size: int, shell: Shell) -> None:
    install = commands("charts/sandlot/README.md")
    # The pool of docs/configure.md, which docs/upgrade.md changes.
    before = "" if page.endswith("README.md") else f"{install}kubectl apply -f pool.yaml\n"
    shell.run(before + commands(page))
    pool = "/apis/sandlot.dev/v1alpha1/namespaces/sandlot-sandboxes/sandboxpools/default"
    assert shell.server.call("GET", pool)["spec"]["size"] == size


@pytest.mark.programs
def test_what_the_install_prints(shell: Shell) -> None:
    """Its commands are run as they stand, and what may be wrong with the values is said."""
    said = shell.run(commands("charts/sandlot/README.md"))
    assert "no images are published" not in said
    lines = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    run = [line for line in lines if line.startswith(("kubectl", "export", "sandlot"))]
    assert run[-2] == "sandlot run python:3.12 -- 'echo hello'"
    out = shell.run("\n".join([*run, 'echo "key: $SANDLOT_API_KEY at $SANDLOT_URL"']))
    assert len(out.rpartition("key: ")[2].split()[0]) == 40
    off = "networkPolicy.enabled=false,defaultPool.enabled=false"
    bare = shell.run(f"helm upgrade sandlot charts/sandlot --namespace sandlot --set {off}")
    for words in ("no images are published", "no warm pool", "networkPolicy.enabled is false"):
        assert words in bare


@pytest.mark.programs
def test_a_key_that_was_deleted_is_made_anew_and_a_rollback_brings_the_old_one(shell: Shell) -> None:
    def key() -> str:
        path = "/api/v1/namespaces/sandlot/secrets/sandlot-api-key"
        return base64.b64decode(shell.server.call("GET", path)["data"]["api-key"]).decode()

    shell.run(commands("charts/sandlot/README.md"))
    first = key()
    shell.run(
        "kubectl -n sandlot delete secret sandlot-api-key\n"
        "helm upgrade sandlot charts/sandlot --namespace sandlot --values values.yaml"
    )
    second = key()
    assert (len(second), second == first) == (40, False)
    shell.run("helm rollback sandlot --namespace sandlot")
    assert key() == first


@pytest.mark.programs
def test_a_pool_changed_by_other_means_is_a_conflict_that_can_be_settled(shell: Shell) -> None:
    shell.run(commands("charts/sandlot/README.md"))
    patch = """kubectl -n sandlot-sandboxes patch sandboxpool default --type merge --patch '{"spec": {"size": 8}}'"""
    upgrade = "helm upgrade sandlot charts/sandlot --namespace sandlot --values values.yaml"
    assert "Apply failed with 1 conflict" in shell.run(f"{patch}\n! {upgrade} 2>&1")
    shell.run(f"{upgrade} --force-conflicts")
    pool = "/apis/sandlot.dev/v1alpha1/namespaces/sandlot-sandboxes/sandboxpools/default"
    assert shell.server.call("GET", pool)["spec"]["size"] == 4


@pytest.mark.programs
def test_definitions_that_changed_are_applied_over_helm_s(shell: Shell) -> None:
    """Helm made them, so a plain server-side apply of a change would be a conflict."""
    name = "sandboxpools.sandlot.dev"
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    shell.run(
        f"kubectl delete crd {name} --ignore-not-found --dry-run=none; "
        + commands("charts/sandlot/README.md")
    )
    source = (ROOT / "charts/sandlot/crds/sandboxpools.yaml").read_text()
    changed = source.replace("maximum: 10000", "maximum: 20000")
    assert changed != source
    (shell.directory / "crds").mkdir()
    (shell.directory / "crds" / "sandboxpools.yaml").write_text(changed)
    command = next(line for line in commands("docs/upgrade.md").splitlines() if "crds" in line)
    try:
        shell.run(command.replace("charts/sandlot/crds", "crds"))
        spec = shell.server.call("GET", path)["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
            "properties"
        ]
        assert spec["spec"]["properties"]["size"]["maximum"] == 20000
    finally:
        shell.run(command)
