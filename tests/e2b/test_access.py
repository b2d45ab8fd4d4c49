"""Signed URLs of a sandbox that this gateway does not know: another one may have just created it."""

from __future__ import annotations

import pytest
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.data.answers import Scope
from sandlot_gateway.directory import Directory
from sandlot_gateway.e2b.access import Access, signature
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
