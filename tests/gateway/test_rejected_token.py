"""A sidecar that rejects the gateway's token: nobody is told that the credential of their own is wrong."""

from __future__ import annotations

from connectrpc.code import Code
from sandlot_gateway.data.answers import TOKEN_REJECTED
from sandlot_gateway.rpc.failures import of_sidecar

from tests.gateway.conftest import Running


async def test_logs_and_sessions_say_what_to_compare(box: Running) -> None:
    made = await box.create()
    sidecar = box.machine.of_sandbox(made["id"])
    assert sidecar.claim is not None
    sidecar.claim["token"] = sidecar.token = "another"
    answer = await box.client.get(f"/api/v1/sandbox/{made['id']}/logs")
    assert (answer.status_code, answer.json()["detail"]) == (502, TOKEN_REJECTED)
    error = of_sidecar(401, b'{"error":"unauthorized"}')
    assert (error.code, error.message) == (Code.UNAVAILABLE, TOKEN_REJECTED)
