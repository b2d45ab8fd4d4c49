"""What a request shows by itself: the tenant of a signed URL whose sandbox is not known yet, and a sidecar's own port."""

from __future__ import annotations

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.data.answers import Scope
from sandlot_gateway.data.mounted import APP
from sandlot_gateway.directory import Directory
from sandlot_gateway.e2b.access import Access, signature
from sandlot_gateway.e2b.app_access import is_sidecars
from sandlot_gateway.e2b.failures import EnvdFailure
from sandlot_gateway.e2b.file_query import file_query
from sandlot_gateway.e2b.paths import relocate
from sandlot_gateway.e2b.serving import Serving
from sandlot_gateway.keys import Keys
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.tokens import Tokens


def test_a_signature_says_whose_sandbox_it_is() -> None:
    directory = Directory()
    access = Access(
        keys=Keys(["key-a:alpha", "key-b:beta"]),
        tokens=Tokens(b"k" * 32),
        serving=Serving(directory, others=None),
    )
    sandbox_id = new_sandbox_id(1e9)

    def caller(tenant: str, operation: str) -> str:
        signed = signature("/a", "read", "", access.token(sandbox_id, tenant))
        query = f"path=/a&signature={signed}".replace("+", "%2B")
        scope: Scope = {"query_string": query.encode(), "headers": [(b"e2b-sandbox-id", sandbox_id.encode())]}
        return access.caller(scope, query=file_query(scope), operation=operation).tenant

    assert [caller(tenant, "read") for tenant in ("alpha", "beta")] == ["alpha", "beta"]
    for tenant, operation in (("alpha", "write"), ("nobody", "read")):
        with pytest.raises(EnvdFailure):
            caller(tenant, operation)


def test_signatures_for_unknown_sandboxes_cost_a_bounded_time() -> None:
    now = 0.0
    directory = Directory()
    access = Access(
        keys=Keys([f"key-{number}:t{number}" for number in range(3000)]),
        tokens=Tokens(b"k" * 32),
        serving=Serving(directory, others=None),
        clock=lambda: now,
    )

    def code(sandbox_id: SandboxId) -> str:
        query = f"path=/a&signature={signature('/a', 'read', '', 'guessed')}".replace("+", "%2B")
        scope: Scope = {"query_string": query.encode(), "headers": [(b"e2b-sandbox-id", sandbox_id.encode())]}
        with pytest.raises(EnvdFailure) as raised:
            access.caller(scope, query=file_query(scope), operation="read")
        return raised.value.code

    codes = [code(new_sandbox_id(1e9)) for _ in range(4)]
    assert codes == ["unauthenticated"] * 2 + ["resource_exhausted"] * 2
    spec = Spec(name="a", image="host", continues=new_sandbox_id(1e9))
    known = Sandbox(id=new_sandbox_id(2e9), tenant="t0", spec=spec, created_at=2e9, updated_at=2e9)
    directory.add(known)
    assert spec.continues is not None
    assert [code(known.id), code(spec.continues)] == ["unauthenticated"] * 2
    now += 1.0
    assert code(new_sandbox_id(1e9)) == "unauthenticated"


@pytest.mark.parametrize(
    ("address", "theirs"),
    [
        ("10.0.0.7:8700", True),
        ("[fd00::7]:8700", True),
        ("tls:10.0.0.7:8700", True),
        ("unix:/run/a:8700", False),
    ],
)
def test_the_sidecars_own_port_in_a_pod_is_no_apps(address: str, theirs: bool) -> None:
    assert is_sidecars(address, 8700) is theirs
    assert not is_sidecars(address, 870)


@pytest.mark.parametrize("other", ["gateway.test", "80-OTHER.e2b.test", "api.e2b.test"])
def test_of_two_host_names_neither_decides(other: str) -> None:
    app = f"80-{new_sandbox_id(1e9)}.e2b.test"
    other = other.replace("OTHER", new_sandbox_id(2e9))
    for hosts in ((app, other), (other, app)):
        headers = [(b"host", host.encode()) for host in hosts]
        scope: Scope = {"type": "http", "path": "/api/v1/sandbox", "raw_path": b"/api/v1/sandbox"}
        scope["headers"] = headers
        relocate(scope, domain="e2b.test")
        assert (scope["path"], scope[APP].port) == ("/e2b-app/api/v1/sandbox", 0)
