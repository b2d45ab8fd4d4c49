"""Secrets by reference in an installed release: sandboxes have the values that labels give their tenant; nothing else does."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sandlot import BadRequest, Client, Sandbox

from tests import plain_http
from tests.kubernetes.boxes import POOLED, namespace, resource_of, running_pod, until
from tests.kubernetes.releases import SMALL, release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.kubernetes.upgrades import words
from tests.waiting import wait_until

KEY, OTHER = "a-key-of-the-tests", "another-key-of-the-tests"
TENANT = "tests"
LABEL = "tenant.sandlot.dev"
REFS = {"TOKEN": "model-api/token"}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Kept:
    """`place`: the namespace of the Secrets."""

    stack: Stack
    place: str

    def put(self, name: str, value: str, *, tenant: str | None = TENANT, kind: str = "Opaque") -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {} if tenant is None else {f"{LABEL}/{tenant}": "true"}},
            "type": kind,
            "stringData": {"token": value, **({"tls.crt": "", "tls.key": ""} if "tls" in kind else {})},
        }
        self.stack.kubectl("apply", "-n", self.place, "-f", "-", stdin=json.dumps(secret))

    def log(self) -> str:
        """All that the gateway has written, audit records included."""
        return self.stack.kubectl(
            "logs", f"deployment/{self.stack.fullname}-gateway", "-n", self.stack.namespace
        )

    def audited(self, sandbox_id: str) -> list[dict[str, Any]]:
        """The audit records of a sandbox's create and deletion."""
        lines = [json.loads(line) for line in self.log().splitlines() if sandbox_id in line]
        return [line for line in lines if line.get("type") == "audit" and line["id"] == sandbox_id]


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    with (
        release_of_its_own("refs", runtime="runc") as stack,
        namespace(stack, f"{stack.release}-kept") as place,
    ):
        stack.kubectl("create", "namespace", stack.namespace)
        keys = f"--from-literal=api-key={KEY}:{TENANT}::operate\n{OTHER}:others"
        stack.kubectl("create", "secret", "generic", "keys", "-n", stack.namespace, keys)
        values = {
            "auth.existingApiKeySecret": "keys",
            "gateway.secretRefs": {"enabled": True, "namespace": place},
            "gateway.audit.enabled": True,
            "gateway.config": {"logLevel": "debug", "accessLog": 1},
        }
        stack.install(*SMALL, *words(values))
        yield Kept(stack, place)


@pytest.fixture(scope="module")
def caller(kept: Kept) -> Iterator[Client]:
    with Client(url=kept.stack.url, api_key=KEY) as made:
        yield made


@pytest.fixture
def value(kept: Kept) -> str:
    """One of the test's own, now in the Secret that REFS names."""
    value = f"value-{next(_numbers)}-of-the-kept-secret"
    kept.put("model-api", value)
    return value


def create(caller: Client, **more: Any) -> Sandbox:
    return Sandbox.create(IMAGE, client=caller, **{**POOLED, "secret_refs": REFS, "wait": 180, **more})


def test_a_sandbox_has_the_value_and_nothing_else_tells_it(kept: Kept, caller: Client, value: str) -> None:
    stack = kept.stack
    with create(caller) as box:
        assert box.exec("echo $TOKEN", timeout=60).stdout == f"{value}\n"
        seen = caller.call("GET", f"/sandbox/{box.id}")
        assert seen["secretRefs"] == {"TOKEN": {"secret": "model-api", "key": "token"}}
        pod = running_pod(stack, box)
        resource = resource_of(stack, box)
        sidecar = stack.kubectl("logs", pod["metadata"]["name"], "-c", "sidecar", "-n", stack.sandboxes)
        assert '"claimed"' in sidecar
    ended = until(lambda: _verdict(caller, box))
    wait_until(
        lambda: {"sandbox.create", "sandbox.delete"} <= {one["action"] for one in kept.audited(box.id)}
    )
    controller = stack.kubectl("logs", f"deployment/{stack.fullname}-controller", "-n", stack.namespace)
    events = stack.get("events", "-n", stack.sandboxes)
    metrics = plain_http.get(f"{stack.url}/metrics", headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    assert metrics.status_code == 200
    told = [
        kept.log(),
        metrics.text,
        controller,
        sidecar,
        *map(json.dumps, (seen, ended, pod, resource, events)),
    ]
    for text in told:
        assert value not in text
        assert base64.b64encode(value.encode()).decode() not in text


def _verdict(caller: Client, box: Sandbox) -> dict[str, Any] | None:
    """The record of a sandbox that has ended."""
    record: dict[str, Any] = caller.call("GET", f"/sandbox/{box.id}")
    return record if record.get("verdict") else None


def test_a_changed_secret_reaches_the_next_sandbox_and_no_running_one(
    kept: Kept, caller: Client, value: str
) -> None:
    with create(caller) as old:
        kept.put("model-api", "the-next-value")
        with create(caller) as new:
            assert new.exec("echo $TOKEN", timeout=60).stdout == "the-next-value\n"
            assert old.exec("echo $TOKEN", timeout=60).stdout == f"{value}\n"


@pytest.mark.parametrize(
    ("reference", "key", "reason"),
    [
        pytest.param("model-api/token", OTHER, "no label tenant.sandlot.dev/others", id="another-tenant"),
        pytest.param("unlabelled/token", KEY, "no label tenant.sandlot.dev/tests", id="unlabelled"),
        pytest.param("missing/token", KEY, "does not exist", id="missing"),
        pytest.param("model-api/other", KEY, "no key 'other'", id="missing-key"),
        pytest.param("certificate/token", KEY, "of the type kubernetes.io/tls", id="certificate"),
    ],
)
def test_what_is_not_offered_is_refused_by_the_name_of_its_field(
    kept: Kept, value: str, reference: str, key: str, reason: str
) -> None:
    kept.put("unlabelled", value, tenant=None)
    kept.put("certificate", value, kind="kubernetes.io/tls")
    secret, _, its_key = reference.partition("/")
    tenant = TENANT if key == KEY else "others"
    with Client(url=kept.stack.url, api_key=key) as caller, pytest.raises(BadRequest) as refused:
        create(caller, secret_refs={"TOKEN": reference}).delete()
    error = refused.value
    assert (error.status, error.field) == (422, "secret_refs.TOKEN")
    assert f"tenant {tenant!r} may use no secret {secret!r} with a key {its_key!r}" in str(error)
    # The caller is told the same whatever the reason, the operator is told it.
    text = f"tenant {tenant} may not use Secret {secret} of namespace {kept.place}: it"
    assert wait_until(lambda: [line for line in kept.log().splitlines() if text in line and reason in line])
    assert value not in kept.log() + str(error)
