"""`sandlot doctor --cluster` and `support-bundle` on a real release: all is well, then one thing after another is broken."""

from __future__ import annotations

import base64
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot import Client

from tests.kubernetes.boxes import POOLED, filled, pod_of, until, warm
from tests.kubernetes.doctors import (
    applied,
    findings,
    pool,
    removed,
    replace_pods,
    replaced,
    sandlot,
    told_alone,
)
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.kubernetes.upgrades import words

SIZE = 1
NOWHERE = "127.0.0.1:9/nothing:1"  # a port at which no node has a registry
VALUES = {
    "auth.existingApiKeySecret": "keys",
    "pools": {"default": {"size": SIZE, "template": {"image": IMAGE, **POOLED}}},
    "sandboxes.pods.imagePullPolicy": "IfNotPresent",
    "gateway.replicas": 1,
    "gateway.config.registries": ["sandlot.test", NOWHERE.partition("/")[0]],
    "controller.replicas": 1,
}
# Like no key, so that only its place can tell that it is one; nor is it in base64.
KEY = "words-of-nobody"
USERS = "plain words of a user"
NOTE = "example.com/note"


@pytest.fixture(scope="module")
def healthy() -> Iterator[Stack]:
    with release_of_its_own("doctor", runtime="runc") as stack:
        stack.kubectl("create", "namespace", stack.namespace)
        secret = ("secret", "generic", "keys", "-n", stack.namespace)
        stack.kubectl("create", *secret, f"--from-literal=api-key={KEY}")
        stack.install(*words(VALUES))
        filled(stack, size=SIZE)
        yield stack


def test_a_healthy_release_is_ok_throughout(healthy: Stack, tmp_path: Path) -> None:
    # A gateway's first probes and webhooks may still be under way.
    last: dict[str, Any] = {}

    def well() -> bool:
        nonlocal last
        code, last = findings(healthy, tmp_path)
        return code == 0 and all(each["state"] == "ok" for each in last.values())

    try:
        until(well, seconds=120)
    except AssertionError:
        pytest.fail(json.dumps([each for each in last.values() if each["state"] != "ok"], indent=1))
    gateways = [each["detail"] for name, each in last.items() if name.startswith("gateway ")]
    assert len(gateways) == 1
    assert "webhooks of sidecars and knows the pools' ready pods" in gateways[0]
    assert last["webhooks of sidecars"]["detail"].startswith("the logs of 1 sidecars")
    for clocks in ("clocks of the nodes", "clocks of gateways and controllers"):
        assert re.search(
            r"agree with the API server's within \d+ s; \S+ is furthest from it", last[clocks]["detail"]
        )
    used = re.search(r"pods request (\d+\.\d) of their (\d+\.\d) cores", last["nodes"]["detail"])
    assert used, last["nodes"]
    assert 0 < float(used[1]) <= float(used[2])
    room = last["nodes: room for pool default"]["detail"]
    assert re.fullmatch(r"\d+ more pods fit, which request \d\.\d\d cores and \d\.\d\d GiB each", room)


def test_a_support_bundle_has_logs_and_metrics_and_no_secret(
    healthy: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDLOT_API_KEY", healthy.api_key)
    # A busy node may not answer for a log in time, and the list then says so.
    lacking = ""

    def whole() -> dict[str, str] | None:
        nonlocal lacking
        out = tmp_path / "bundle.tar.gz"
        out.unlink(missing_ok=True)
        done = sandlot(healthy, "support-bundle", "--out", str(out), directory=tmp_path)
        lacking = done.stderr
        assert done.returncode == 0
        with tarfile.open(out) as tar:
            files = {member.name.partition("/")[2]: tar.extractfile(member) for member in tar}
            found = {name: file.read().decode() for name, file in files.items() if file is not None}
        lacking = found["not-included.txt"]
        return found if lacking == "everything is included\n" else None

    # Its pod is in use while the bundle is written.
    with (
        Client(url=healthy.url, api_key=healthy.api_key) as client,
        warm(client, env={"GREETING": USERS}, secrets={"WORD": USERS}) as box,
    ):
        assert box.exec("echo $GREETING; echo $GREETING >&2; false", timeout=60).stdout == f"{USERS}\n"
        pod = pod_of(healthy, box)
        name = pod["metadata"]["name"]
        secrets = known_secrets(healthy)
        free = {KEY, *tokens([pod]), base64.b64encode(KEY.encode()).decode()}
        assert len(free) == 3
        assert free <= secrets | {base64.b64encode(KEY.encode()).decode()}
        words_of_others = "; ".join(f"mark={each} and so on" for each in sorted(free))
        with (
            applied(healthy, event(healthy, name, words_of_others)),
            applied(healthy, noted(words_of_others)),
        ):
            try:
                found = until(whole, seconds=120)
            except AssertionError:
                pytest.fail(lacking)
    assert found is not None
    assert len(secrets) > 4
    leaks = {name for name, text in found.items() for secret in {*secrets, *free, USERS} if secret in text}
    assert leaks == set()
    removed_from_it = "; ".join(["mark=(removed) and so on"] * len(free))
    events, pools = (
        json.loads(found[f"resources/{healthy.sandboxes}/{kind}.json"]) for kind in ("events", "sandboxpools")
    )
    assert [one["message"] for one in events if one["metadata"]["name"] == "planted"] == [removed_from_it]
    annotations = [one["metadata"]["annotations"] for one in pools if one["metadata"]["name"] == "noted"]
    assert [each[NOTE] for each in annotations] == [removed_from_it]
    top = {name for name in found if "/" not in name}
    assert top == {"README.txt", "doctor.txt", "doctor.json", "versions.json", "not-included.txt"}
    kinds = {(name.split("/")[0], name.rpartition("/")[2].partition("-")[0]) for name in found if "/" in name}
    assert {("logs", "gateway.log"), ("logs", "controller.log"), ("logs", "sidecar.log")} <= kinds
    assert {("resources", f"{kind}.json") for kind in ("pods", "events", "sandboxpools", "secrets")} <= kinds
    pages = {name: text for name, text in found.items() if name.startswith("metrics/")}
    assert any("sandlot_controller_leader 1.0" in text for text in pages.values())
    assert any("sandlot_ready_queue_depth" in text for text in pages.values())


def known_secrets(stack: Stack) -> set[str]:
    """Every value of the release's Secrets, as it is (a text) and in base64, and the tokens of its pods."""
    found: set[str] = set()
    for namespace in (stack.namespace, stack.sandboxes):
        for each in stack.get("secrets", "-n", namespace)["items"]:
            if each["type"] != "helm.sh/release.v1":  # the chart itself
                found |= set((each.get("data") or {}).values())
    found |= {base64.b64decode(value).decode(errors="replace").strip() for value in found}
    found |= tokens(stack.get("pods", "-n", stack.sandboxes)["items"])
    return {value for value in found if len(value) > 5}


def tokens(pods: Iterable[dict[str, Any]]) -> set[str]:
    """Of sandboxes' pods, from the configuration of their sidecars."""
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    variables = [one for container in containers for one in container.get("env", [])]
    configs = [one["value"] for one in variables if one["name"] == "SANDLOT_SIDECAR_CONFIG"]
    return {json.loads(config)["token"] for config in configs}


def event(stack: Stack, pod: str, message: str) -> dict[str, Any]:
    """One of a pod, as anybody's controller writes them."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "planted"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": stack.sandboxes},
        "reason": "Planted",
        "message": message,
        "type": "Normal",
    }


def noted(note: str) -> dict[str, Any]:
    """A pool without sandboxes that has an annotation."""
    made = pool("noted")
    made["spec"]["size"] = 0
    made["metadata"]["annotations"] = {NOTE: note}
    return made


def test_a_runtime_class_that_does_not_exist_is_named(healthy: Stack, tmp_path: Path) -> None:
    with applied(healthy, pool("broken", runtimeClass="nothing")):
        told = told_alone(healthy, {"pool broken", "runtime class nothing"}, tmp_path)
        assert "named by pool broken" in told["runtime class nothing"]["detail"]
        assert "nothing" in told["pool broken"]["detail"], "the API server's own reason"


def test_an_image_that_cannot_be_pulled_is_named(healthy: Stack, tmp_path: Path) -> None:
    pods = f"pods of {healthy.sandboxes}"
    with applied(healthy, pool("unpullable", image=NOWHERE)):
        # The controller takes the pod away, and a while later starts another.
        told = told_alone(healthy, {"pool unpullable"}, tmp_path, perhaps={pods})
        assert "image_pull: " in told["pool unpullable"]["detail"]
        assert NOWHERE in told["pool unpullable"]["detail"]
        assert NOWHERE in told.get(pods, {"detail": NOWHERE})["detail"]


def test_a_quota_that_is_reached_is_named(healthy: Stack, tmp_path: Path) -> None:
    few = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": str(SIZE)}},
    }
    quota = f"quota {healthy.sandboxes}/few"
    with applied(healthy, few):
        until(lambda: healthy.get("resourcequota", "few", "-n", healthy.sandboxes)["status"].get("used"))
        with applied(healthy, pool("over")):
            told = told_alone(healthy, {"pool over", quota}, tmp_path)
            assert "of 1 used, and another pod does not fit" in told[quota]["detail"]
            assert "exceeded quota: few" in told["pool over"]["detail"]


def test_a_policy_that_keeps_webhooks_from_the_gateway_is_told_by_what_sidecars_say(
    healthy: Stack, tmp_path: Path
) -> None:
    """The policy opens the port, only not to them: nothing but a webhook that fails tells of it."""

    def to_others(policy: dict[str, Any]) -> None:
        (rule,) = [
            each for each in policy["spec"]["ingress"] if [port["port"] for port in each["ports"]] == [8641]
        ]
        labels = {"kubernetes.io/metadata.name": "elsewhere"}
        rule["from"] = [{"namespaceSelector": {"matchLabels": labels}}]

    name = f"{healthy.fullname}-gateway"
    with replaced(healthy, "networkpolicy", name, healthy.namespace, to_others):
        replace_pods(healthy)
        told = told_alone(healthy, {"webhooks of sidecars"}, tmp_path)["webhooks of sidecars"]
        assert "1 of 1 sidecars did not reach a gateway" in told["detail"]
        assert "network policies" in told["advice"]
    replace_pods(healthy)


def test_a_right_that_is_taken_and_names_that_nobody_can_look_up_are_told(
    healthy: Stack, tmp_path: Path
) -> None:
    """A controller that may not read the gateways' Service gives sidecars no address, and they have no DNS."""

    def without_services(role: dict[str, Any]) -> None:
        role["rules"] = [each for each in role["rules"] if each["resources"] != ["services"]]

    def begin_again() -> None:
        where = ("-n", healthy.namespace)
        controller = f"deployment/{healthy.fullname}-controller"
        healthy.kubectl("rollout", "restart", controller, *where)
        healthy.kubectl("rollout", "status", controller, *where, "--timeout=180s")
        replace_pods(healthy)

    role = f"{healthy.fullname}-controller-lease"
    with (
        replaced(healthy, "role", role, healthy.namespace, without_services),
        removed(healthy, "networkpolicy", "dns", healthy.sandboxes),
    ):
        begin_again()
        # A network plugin may let the first packets of a pod pass, such as those of a lookup.
        told = told_alone(
            healthy, {"rights of the controller", "DNS"}, tmp_path, perhaps={"webhooks of sidecars"}
        )
        assert f"get services in {healthy.namespace}" in told["rights of the controller"]["detail"]
        assert "1 of 1 sidecars do not have the address" in told["DNS"]["detail"]
        assert "networkPolicy.dns" in told["DNS"]["advice"]
    begin_again()
    told_alone(healthy, set(), tmp_path)
