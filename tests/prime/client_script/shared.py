"""What the steps share: the request for a sandbox, and answers and errors as plain values."""

from __future__ import annotations

import inspect
import os
import sys
import uuid
from typing import Any

import prime_sandboxes as sdk  # type: ignore[import-not-found]

IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]
RUN = f"run-{uuid.uuid4().hex[:8]}"
MODE = {"vm": {"vm": True}, "container": {"vm": False}}.get(sys.argv[1], {}) if len(sys.argv) > 1 else {}


def request(name: str, **more: Any) -> Any:
    return sdk.CreateSandboxRequest(
        name=name,
        docker_image=IMAGE,
        memory_gb=1,
        timeout_minutes=10,
        labels=[RUN, *more.pop("labels", ())],
        environment_vars={"FROM_CREATE": "made"},
        **MODE,
        **more,
    )


def plain(answer: Any) -> list[Any]:
    return [answer.stdout, answer.stderr, answer.exit_code]


async def error_of(work: Any) -> list[str]:
    """The kind of error, and the kinds that a caller may catch it as."""
    try:
        await work
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("prime")]
        return [*kinds, str(error)]
    return ["no error"]


async def answer_of(work: Any) -> list[Any]:
    try:
        return plain(await work)
    except (sdk.APIError, ValueError) as error:
        return [type(error).__name__, str(error)]


def takes(method: Any, name: str) -> bool:
    return name in inspect.signature(method).parameters
