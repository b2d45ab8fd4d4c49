"""schemathesis against the control API: no failure, only documented statuses, bodies as the schema says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
import schemathesis
import uvloop
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandlot_gateway.control.api import control_api
from sandlot_gateway.control.errors import UNEXPECTED
from sandlot_gateway.control.field_types import NO_SANDBOX_IDS
from sandlot_gateway.control.paths import PREFIX
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests import plain_http
from tests.gateway.conftest import KEY, Running, running
from tests.gateway.machine import Machine

# The gateway's thread does, while an example is made here.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")


def expected(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> None:
    """A 503 may be an answer that is documented, as of a group whose deadline is over, or a failure of the gateway."""
    assert UNEXPECTED not in response.text


CHECKS = (
    expected,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
)


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The gateway lives longer than one test here, in a thread that is joined."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A gateway in a thread of its own: schemathesis is synchronous."""
    ready: threading.Event = threading.Event()
    found: dict[str, object] = {}

    async def main() -> None:
        with TemporaryDirectory(prefix="so-") as state, TemporaryDirectory(prefix="sm-") as directory:
            machine = Machine(Path(directory), capacity=5)
            async with running(Path(state), machine, wait_seconds=1.0) as box:
                found.update(url=box.url, box=box, loop=asyncio.get_running_loop())
                await box.client.delete(f"/api/v1/sandbox/{(await box.create(start_command='x'))['id']}")
                ready.set()
                await box.ending.begun.wait()
            await machine.close()

    thread = threading.Thread(target=uvloop.run, args=(main(),))
    thread.start()
    assert ready.wait(60)
    yield str(found["url"])
    box, loop = found["box"], found["loop"]
    assert isinstance(box, Running)
    assert isinstance(loop, asyncio.AbstractEventLoop)
    loop.call_soon_threadsafe(box.ending.begin)
    thread.join(60)
    assert not thread.is_alive()


OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in control_api(cast(Any, None)).openapi()["paths"].items()
    for method in methods
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_api_is_as_documented(server: str, operation: str) -> None:
    url = server
    headers = {"Authorization": f"Bearer {KEY}"}
    # Groups that other operations' tests have left may fill the queue.
    plain_http.request(
        "DELETE", f"{url}/api/v1/sandbox", json={"all_users": True}, headers=headers
    ).raise_for_status()
    made = plain_http.post(f"{url}/api/v1/sandbox", json={"docker_image": "host"}, headers=headers)
    made.raise_for_status()
    sandbox_id = made.json()["id"]
    schema = schemathesis.openapi.from_dict(plain_http.get(f"{url}/api/v1/openapi.json").json())
    schema.config.update(base_url=url)
    method, _, path = operation.partition(" ")

    @given(case=schema[path][method].as_strategy(), real=st.booleans())
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    def check(case: schemathesis.Case, real: bool) -> None:
        # Ids made up at random would see nothing but 404.
        if real and "sandbox_id" in (case.path_parameters or {}):
            case.path_parameters["sandbox_id"] = sandbox_id
        if path.endswith("/events"):  # a stream ends by itself only so
            case.query = {**(case.query or {}), "follow": "false"}
        case.call_and_validate(headers=headers, timeout=30, checks=CHECKS)

    check()


def test_the_schema_excludes_ids_that_name_other_routes() -> None:
    """Else a client that believes the schema gets another operation's answer for a sandbox's."""
    app = control_api(cast(Any, None))
    start = f"{PREFIX}/sandbox/"
    paths = [route.path for route in app.routes if isinstance(route, APIRoute)]
    words = {path.removeprefix(start).split("/")[0] for path in paths if path.startswith(start)}
    assert words - {"{sandbox_id}"} == set(NO_SANDBOX_IDS)
    for path, methods in app.openapi()["paths"].items():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] == "sandbox_id":
                    assert parameter["schema"]["not"] == {"enum": list(NO_SANDBOX_IDS)}, path
