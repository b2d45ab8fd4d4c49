"""What a request shows by itself: the tenant of a signed URL whose sandbox is not known yet, and a sidecar's own port."""

from __future__ import annotations

import pytest
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.data.answers import Scope
from sandlot_gateway.directory import Directory
from sandlot_gateway.e2b.access import Access, signature
from sandlot_gateway.e2b.app_access import is_sidecars
from sandlot_gateway.e2b.failures import EnvdFailure
from sandlot_gateway.e2b.file_query import file_query
from sandlot_gateway.e2b.serving import Serving
from sandlot_gateway.keys import Keys
from sandlot_gateway.tokens import Tokens


def test_a_signature_says_whose_sandbox_it_is() -> None:
    directory = Directory()
    access = Access(
        keys=Keys(["key-a:alpha", "key-b:beta"]),
        tokens=Tokens(b"k" * 32),
        routes=directory,
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
